"""Parts of pictures: plain SVG 1.1 without scripts, fonts or links.

So a picture can stand in a README or a report; it follows the reader's choice of a light or dark
scheme. Every text of the cluster's is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

WIDTH: Final = 860
LEFT: Final = 20
RIGHT: Final = 110
"""Room for the length of the longest bar, as text."""
LETTER: Final = 7.4
BOLD_LETTER: Final = 8.6
"""Hardly any font's letters are wider on average, at the sizes that are used (12 and 13)."""
_STYLE: Final = (
    "<style>.jr-page{fill:#ffffff;stroke:#d8dee4}.jr-text{fill:#24292f}.jr-faint{fill:#57606a}"
    ".jr-grid{stroke:#e4e8ec}.jr-bold{font-weight:600}"
    "@media (prefers-color-scheme:dark){.jr-page{fill:#0d1117;stroke:#30363d}"
    ".jr-text{fill:#e6edf3}.jr-faint{fill:#9198a1}.jr-grid{stroke:#262c33}}</style>"
)


def picture(title: str, height: int, parts: Iterable[str]) -> str:
    """Return a picture with its title, on a page of this height."""
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' "
        f"width='{WIDTH}' height='{height}' role='img' font-size='13' "
        "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'>"
    )
    page = f"x='.5' y='.5' width='{WIDTH - 1}' height='{height - 1}' rx='8'"
    return "\n".join(
        (
            *(head, f"<title>{escape(title)}</title>", _STYLE, f"<rect class='jr-page' {page}/>"),
            words(LEFT, 30, cut(title, 76), "jr-text jr-bold", "font-size='16'"),
            *parts,
            "</svg>\n",
        )
    )


def legend(entries: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield the legend below the title: label, text and colour of each entry."""
    listed = list(entries)
    for at, (label, text, colour) in enumerate(listed):
        x = LEFT + at * (WIDTH - 2 * LEFT) // len(listed)
        about = f": {escape(text)}" if text else ""
        yield (
            f"<rect x='{x}' y='47' width='12' height='12' rx='2' fill='{colour}'/>"
            f"<text class='jr-faint' x='{x + 18}' y='58' font-size='12'>"
            f"<tspan class='jr-text'>{escape(label)}</tspan>{about}</text>"
        )


def bar(
    at: tuple[float, int, float], colours: tuple[str, str], text: str, about: str
) -> Iterator[str]:
    """Yield a bar, with its text if there is room for it.

    Args:
        at: left end, top and width.
        colours: colours of the bar and of its text.
        text: text in the bar.
        about: text that is shown when the pointer is on the bar.
    """
    (x, y, width), (colour, ink) = at, colours
    yield (
        f"<rect x='{x:.1f}' y='{y}' width='{width:.1f}' height='20' rx='2' "
        f"fill='{colour}'><title>{escape(about)}</title></rect>"
    )
    if width > (len(text) + 1) * LETTER:
        look = f"font-size='12' text-anchor='middle' fill='{ink}'"
        yield words(x + width / 2, y + 14, text, "jr-in", look)


def words(x: float, y: int, text: str, look: str, more: str = "") -> str:
    """Return a text at a place."""
    return f"<text class='{look}' x='{x:.1f}' y='{y}' {more}>{escape(text)}</text>"


def cut(text: str, letters: int) -> str:
    """Return a text of at most this number of letters."""
    return text if len(text) <= letters else f"{text[: max(1, letters - 1)]}…"
