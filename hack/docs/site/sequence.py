"""Sequence diagrams, drawn when the site is built, so that pages need no script.

Pages have ``mermaid`` blocks, which GitHub draws. This module supports the part of that notation
that they use (participants, messages, notes, ``par`` with ``and``), and refuses the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final, NamedTuple

COLUMN: Final = 190
LINE: Final = 18
LETTER: Final = 6.6
MARGIN: Final = 12
_PARTICIPANT: Final = re.compile(r"participant (\w+) as (.+)")
_MESSAGE: Final = re.compile(r"(\w+)(-{1,2})>>(\w+): (.+)")
_NOTE: Final = re.compile(r"Note over (\w+)(?:,(\w+))?: (.+)")


class DiagramError(ValueError):
    """A line is not supported in diagrams."""


class Picture(NamedTuple):
    """A diagram in progress.

    Args:
        parts: SVG elements.
        columns: participant's short name to the middle of its column.
    """

    parts: list[str]
    columns: dict[str, float]


def svg(lines: Sequence[str]) -> str:
    """Return a diagram as SVG.

    Raises:
        DiagramError: a line is not supported.
    """
    first, *rest = [line.strip() for line in lines if line.strip()]
    if first != "sequenceDiagram":
        raise DiagramError(f"not drawn: {first}")
    names = dict(found.groups() for line in rest if (found := _PARTICIPANT.fullmatch(line)))
    if not names:
        raise DiagramError("not drawn: no participants")
    columns = {name: COLUMN * (at + 0.5) for at, name in enumerate(names)}
    width = COLUMN * len(names)
    picture = Picture([], columns)
    top = LINE * max(len(_wrapped(text, COLUMN - 30)) for text in names.values()) + 2 * MARGIN
    y = float(top + MARGIN)
    for line in rest:
        if not _PARTICIPANT.fullmatch(line):
            y = _drawn(line, y, picture, width)
    lines_down = [
        f"<line class='seq-life' x1='{x}' y1='{top}' x2='{x}' y2='{y}'/>" for x in columns.values()
    ]
    heads = [
        part
        for name, text in names.items()
        for part in _box(columns[name], 1, COLUMN - 24, _wrapped(text, COLUMN - 30), "seq-head")
    ]
    opening = (
        f"<svg class='sequence' xmlns='http://www.w3.org/2000/svg' role='img' "
        f"viewBox='0 0 {width} {y + 2:.0f}' width='{width}'>"
    )
    return "\n".join((opening, *lines_down, *heads, *picture.parts, "</svg>"))


def _drawn(line: str, y: float, picture: Picture, width: int) -> float:
    """Draw a line of the diagram at a height; return the height below it."""
    if found := _MESSAGE.fullmatch(line):
        sender, dashes, receiver, text = found.groups()
        return _message(picture, sender, receiver, text, y, dashed=dashes == "--")
    if found := _NOTE.fullmatch(line):
        one, two, text = found.groups()
        left, right = picture.columns[one], picture.columns[two or one]
        room = max(COLUMN * 1.3, right - left + COLUMN * 0.8)
        middle = min(max((left + right) / 2, room / 2), width - room / 2)
        words = [line for part in text.split("<br/>") for line in _wrapped(part, room - 16)]
        picture.parts.extend(_box(middle, y, room, words, "seq-note"))
        return y + LINE * len(words) + 2 * MARGIN
    if line in {"par", "and", "end"}:
        picture.parts.append(
            f"<line class='seq-par' x1='4' y1='{y}' x2='{width - 4}' y2='{y}'/>"
            + (_text(8, y + 14, "at the same time", "start") if line == "par" else "")
        )
        return y + (LINE + 6 if line == "par" else 10)
    raise DiagramError(f"not drawn: {line}")


def _message(
    picture: Picture, sender: str, receiver: str, text: str, y: float, *, dashed: bool
) -> float:
    start, end = picture.columns[sender], picture.columns[receiver]
    look = f"class='seq-arrow{' seq-dashed' if dashed else ''}'"
    if sender == receiver:
        words = _wrapped(text, COLUMN - 40)
        below = y + LINE * max(2, len(words))
        picture.parts.append(
            f"<path {look} d='M{start},{y + 4} h22 v{below - y - 8} h-16'/>"
            f"<path class='seq-tip' d='M{start + 1},{below - 4} l8,-4 v8 z'/>"
        )
        picture.parts.extend(
            _text(start + 28, y + 14 + LINE * at, each, "start") for at, each in enumerate(words)
        )
        return below + 8
    words = _wrapped(text, abs(end - start) - 16)
    for each in words:
        picture.parts.append(_text((start + end) / 2, y + 11, each))
        y += LINE
    toward = 1 if end > start else -1
    picture.parts.append(
        f"<line {look} x1='{start}' y1='{y}' x2='{end - toward * 6}' y2='{y}'/>"
        f"<path class='seq-tip' d='M{end},{y} l{-toward * 9},-4 v8 z'/>"
    )
    return y + MARGIN


def _box(middle: float, y: float, width: float, words: list[str], look: str) -> list[str]:
    height = LINE * len(words) + MARGIN
    box = (
        f"<rect class='{look}' x='{middle - width / 2}' y='{y}' width='{width}' "
        f"height='{height}' rx='4'/>"
    )
    return [box, *(_text(middle, y + 19 + LINE * at, each) for at, each in enumerate(words))]


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{escape(text)}</text>"


def _wrapped(text: str, width: float) -> list[str]:
    """Split a text into lines that are no wider."""
    lines = [""]
    for word in text.strip().strip('"').split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(longer) * LETTER > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def setup(app: Any) -> dict[str, Any]:
    """Register the directive ``mermaid`` in Sphinx."""
    from docutils import nodes
    from docutils.parsers.rst import Directive

    class Sequence(Directive):
        has_content = True

        def run(self) -> list[nodes.Node]:
            try:
                return [nodes.raw("", svg(self.content), format="html")]
            except DiagramError as problem:
                raise self.error(str(problem)) from problem

    add: Callable[..., None] = app.add_directive
    add("mermaid", Sequence)
    return {"parallel_read_safe": True}
