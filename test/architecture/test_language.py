"""Plain English: the worst patterns of the project's former dialect do not come back."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXCEPT = {Path(__file__).resolve(), ROOT / "CONTRIBUTING.md"}
DOCSTRING = "docstring that begins with What, Whether, Who or Of"
WORDS = {
    "told of": re.compile(r"\btold\s+of\b", re.IGNORECASE),
    "anew": re.compile(r"\banew\b", re.IGNORECASE),
    "so many, so often, so long": re.compile(r"\bso\s+(many|often|long)\b", re.IGNORECASE),
    "see there": re.compile(r"\bsee\s+there\b", re.IGNORECASE),
    "nobody, somebody": re.compile(r"\b(nobody|somebody)\b", re.IGNORECASE),
}
FOLDERS = ("src", "hack", "bench", "docs", "test", "charts", "config", "examples", "requirements")
"""Texts of ``--help`` are in ``src``."""
SUFFIXES = {".py", ".md", ".yaml", ".tpl", ".txt", ".toml", ".go", ".c", ".css"}

COMMENT = re.compile(r"^\s*(?:#|//)\s*(?:--\s*)?(?:What|Whether|Who|Of) ", re.MULTILINE)
DESCRIPTION = re.compile(r"\b(?:description|summary)\W+(?:What|Whether|Who|Of) ")


def sources() -> Iterator[Path]:
    """Yield the files that people read, except this one and the style guide."""
    files = {file for folder in FOLDERS for file in (ROOT / folder).rglob("*")}
    files |= {*ROOT.glob("*"), ROOT / ".importlinter"}
    for file in sorted(files - EXCEPT):
        if file.is_file() and (file.suffix in SUFFIXES or file.parent == ROOT):
            yield file


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of all docstrings, including those of constants."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def occurrences(file: Path) -> Counter[str]:
    """Count each pattern in a file."""
    text = file.read_text()
    found = Counter({name: len(pattern.findall(text)) for name, pattern in WORDS.items()})
    if file.suffix == ".py":
        found[DOCSTRING] = sum(
            text.startswith(("What ", "Whether ", "Who ", "Of "))
            for text in docstrings(ast.parse(text))
        )
    elif file.suffix == ".yaml":
        found["comment that begins like that"] = len(COMMENT.findall(text))
    found["description that begins like that"] = len(DESCRIPTION.findall(text))
    return found


def test_pattern_is_not_used():
    """Rules 1 to 5 of the style guide in CONTRIBUTING.md."""
    found = {
        str(file.relative_to(ROOT)): used for file in sources() if (used := +occurrences(file))
    }

    assert found == {}
