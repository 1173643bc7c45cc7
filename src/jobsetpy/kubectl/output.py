"""What commands print: for people by rich, for programs as JSON or YAML."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

STYLES: Final = {
    "Running": "green",
    "Completed": "green",
    "Restarting": "yellow",
    "Waiting": "yellow",
    "Suspended": "blue",
    "Failed": "red",
    "Interrupted": "red",
}


def console() -> Console:
    """Standard output; as wide as texts are where it is no terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 200
    return Console(highlight=False, width=width, soft_wrap=not sys.stdout.isatty())


def write(data: Any, form: str) -> None:
    """Print data as JSON or YAML."""
    if form == "json":
        text = json.dumps(data, indent=2) + "\n"
    else:
        import yaml

        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    sys.stdout.write(text)


def parse_time(text: str | None) -> datetime | None:
    """A time of the API server's."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def ago(text: str | None, now: datetime) -> str:
    """How long that is ago, as kubectl prints ages."""
    then = parse_time(text)
    return "" if then is None else duration((now - then).total_seconds())


def duration(seconds: float) -> str:
    """As kubectl prints ages: two units at most."""
    seconds = max(0, int(seconds))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10 and seconds % 60:
        return f"{minutes}m{seconds % 60}s"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 48:
        return f"{hours}h{minutes % 60}m" if hours < 8 and minutes % 60 else f"{hours}h"
    return f"{hours // 24}d"


def millis(value: int | None) -> str:
    """Milliseconds, as short as they can be told."""
    if value is None:
        return ""
    if value >= 100_000:
        return duration(value / 1000)
    return f"{value} ms" if value < 1000 else f"{value / 1000:.3g} s"
