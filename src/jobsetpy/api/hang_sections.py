"""Sections of a program with their own hang timeouts: ``checkpoint=600,evaluate=1200``.

Used by admission for validation, and by the agent.
"""

from __future__ import annotations

import re
from typing import Final

MAX_SECTIONS: Final = 32
MAX_SECONDS: Final = 604800
_LONGEST: Final = 32
_SECONDS: Final = re.compile("[1-9][0-9]{0,5}")

SECTIONS_FORM: Final = (
    f"must be at most {MAX_SECTIONS} words with whole seconds from 1 to {MAX_SECONDS}, such as "
    '"checkpoint=600,evaluate=1200"'
)


def section_name(word: bytes) -> str:
    """Return a word as the name of a section; "" if it is not a valid name."""
    text = word.decode("ascii", "replace")
    plain = text.replace("-", "").replace("_", "")
    return text if plain.isascii() and plain.isalnum() and len(text) <= _LONGEST else ""


def hang_sections(text: str) -> dict[str, float] | None:
    """Return the timeouts of sections in seconds; ``None`` if the text is invalid."""
    found: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, seconds = part.partition("=")
        if name in found or not section_name(name.encode("utf-8", "replace")):
            return None
        if not _SECONDS.fullmatch(seconds) or int(seconds) > MAX_SECONDS:
            return None
        found[name] = float(seconds)
    return found if len(found) <= MAX_SECTIONS else None
