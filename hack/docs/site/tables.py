"""Tables that fit any window: narrow ones show each row of a wide table as a block.

A cell gets the heading of its column as ``data-label``, which ``site.css`` shows in such blocks;
empty cells, and those with a dash, are left out of them.
"""

from __future__ import annotations

import html
import re
from typing import Any, Final

WIDE: Final = 3
"""Number of columns from which a phone shows rows as blocks."""
VERY_WIDE: Final = 8
"""Number of columns from which every window does."""
NOTHING: Final = ("", "-", "–")
"""Texts of cells that blocks leave out."""

_TABLE: Final = re.compile(r"<table\b.*?</table>", re.DOTALL)
_HEAD: Final = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_ROW: Final = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"<td\b([^>]*)>(.*?)</td>", re.DOTALL)


def labelled(body: str) -> str:
    """Return a page's HTML, as Sphinx writes it, with labels in the cells of its wide tables."""
    return _TABLE.sub(lambda found: _labelled(found[0]), body)


def _labelled(table: str) -> str:
    heads = [_text(head) for head in _HEAD.findall(table)]
    if len(heads) < WIDE:
        return table
    kind = "very-wide" if len(heads) >= VERY_WIDE else "wide"
    first, rest = table.split(">", 1)
    if 'class="' in first:
        first = first.replace('class="', f'class="{kind} ', 1)
    else:
        first += f' class="{kind}"'

    def row(found: re.Match[str]) -> str:
        labels = iter(heads)

        def cell(found: re.Match[str]) -> str:
            label = html.escape(next(labels, ""))
            empty = " data-empty" if _text(found[2]) in NOTHING else ""
            return f'<td{found[1]} data-label="{label}"{empty}>{found[2]}</td>'

        return _CELL.sub(cell, found[0])

    return f"{first}>{_ROW.sub(row, rest)}"


def _text(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", markup)).strip()


def _change(_app: Any, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    if "body" in context:
        context["body"] = labelled(context["body"])


def setup(app: Any) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.connect("html-page-context", _change)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
