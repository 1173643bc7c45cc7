"""Pages of the documentation render as their authors meant."""

from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/**/README.md"))
    if ".venv" not in path.parts and "build" not in path.parts
)


def raw_rows(text: str) -> list[str]:
    """Return table rows that a renderer shows as plain text, such as those after a blank line."""
    found = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "inline" and token.map:
            found += [line for line in token.content.splitlines() if line.startswith("|")]
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_shows_no_raw_table_row(path):
    """Each row belongs to a table that is rendered as one."""
    assert raw_rows(path.read_text()) == []


def test_raw_row_is_found_when_a_blank_line_breaks_a_table():
    """The defect that the other test looks for."""
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n"

    assert raw_rows(table) == []
    assert raw_rows(table + "\n| 3 | 4 |\n") == ["| 3 | 4 |"]
