"""Plain English: the worst patterns of the project's former dialect do not come back."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCSTRING = "docstring that begins with What, Whether, Who or Of"
WORDS = {
    "told of": re.compile(r"\btold\s+of\b", re.IGNORECASE),
    "anew": re.compile(r"\banew\b", re.IGNORECASE),
    "so many, so often, so long": re.compile(r"\bso\s+(many|often|long)\b", re.IGNORECASE),
    "see there": re.compile(r"\bsee\s+there\b", re.IGNORECASE),
    "nobody, somebody": re.compile(r"\b(nobody|somebody)\b", re.IGNORECASE),
}
FOLDERS = ("src", "hack", "bench", "docs", "test")
"""Texts of ``--help`` are in ``src``."""


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of all docstrings, including those of constants."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def occurrences(folder: Path) -> Counter[str]:
    """Count each pattern in the Python sources and pages of a folder."""
    found: Counter[str] = Counter()
    files = {*folder.rglob("*.py"), *folder.rglob("*.md")} - {Path(__file__).resolve()}
    for file in files:
        text = file.read_text()
        found.update({name: len(pattern.findall(text)) for name, pattern in WORDS.items()})
        if file.suffix == ".py":
            found[DOCSTRING] += sum(
                text.startswith(("What ", "Whether ", "Who ", "Of "))
                for text in docstrings(ast.parse(text))
            )
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_pattern_is_not_used(folder):
    """Rules 1 to 5 of the style guide in CONTRIBUTING.md."""
    found = occurrences(ROOT / folder)

    assert {name: n for name, n in found.items() if n} == {}
