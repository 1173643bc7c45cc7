"""Progress messages: a live line on a terminal, plain lines elsewhere, none in tests."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress:
    """Interface of progress messages; this class prints nothing, `Shown` prints them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def begin(self, text: str) -> None:
        """Report that a long step has begun."""

    def update(self, text: str) -> None:
        """Report the progress of the step."""

    def still(self, text: str) -> None:
        """Report periodically that the step continues."""

    def step(self, text: str) -> None:
        """Report that a step is complete."""

    def note(self, text: str) -> None:
        """Print a line that is not a step."""


class Shown(Progress):
    """Prints messages with the seconds since the start; on a terminal also the current step."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._start = time.monotonic()
        self._bar: Bar | None = None
        self._text = ""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def begin(self, text: str) -> None:
        self._stop()
        self._text = text
        self._bar = _bar(self._stream) if self._stream.isatty() else None
        if self._bar is None:
            self._line(f"{text} ...")
        else:
            self._bar.add_task(text, total=None)
            self._bar.start()

    def update(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=f"{self._text}: {text}")

    def still(self, text: str) -> None:
        if self._bar is None:
            self._line(text)

    def step(self, text: str) -> None:
        self._stop()
        self._line(text)

    def note(self, text: str) -> None:
        self.step(text)

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _line(self, text: str) -> None:
        elapsed = time.monotonic() - self._start
        print(f"{elapsed:7.1f}s  {text}", file=self._stream, flush=True)


def _bar(stream: TextIO) -> Bar | None:
    """Return a spinner with the time; None if rich is not installed."""
    try:
        from rich.console import Console
        from rich.progress import Progress as RichProgress
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return RichProgress(*columns, console=Console(file=stream, highlight=False), transient=True)
