"""Names of files, modules, commands and tests in pages, comments and docstrings are current."""

import importlib.util
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from jobsetpy.api import keys
from jobsetpy.kubectl.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "hack", "bench", "test", "docs", "config", "charts", "examples")
BASES = (ROOT, *(ROOT / each for each in ("src/jobsetpy", "test", "test/support", "docs", "hack")))
"""Folders from which a path may be written, in addition to that of the file."""
PATH = re.compile(r"`(?:\.\./)*((?:[\w.-]+/)+[\w.-]+\.(?:py|md|yaml|json|sh|toml))`")
MODULE = re.compile(r"`((?:jobsetpy|hack|bench|support)(?:\.\w+)+)\b")
ROOM = re.compile(r"`[.~]?([a-z]\w*(?:\.\w+)+)\b")
"""Dotted name that may begin with the name of a room, without the packages around it."""
WITH_ROOMS = [ROOT / "src/jobsetpy" / each for each in ("agent", "coscheduler", "reconcilers")]
TEST = re.compile(r"`(test_\w+)`")
COMMAND = re.compile(r"`(?:kubectl jobset|jobsetpy kubectl) ([a-z]\w*)")
MADE = "manifests/"
"""Beginnings of paths in other projects."""


def texts() -> Iterator[tuple[Path, str]]:
    """Yield pages, and sources with their comments and docstrings."""
    for path in (*ROOT.glob("*.md"), *(p for each in FOLDERS for p in (ROOT / each).rglob("*"))):
        if path.suffix in {".py", ".md"} and path != Path(__file__) and path.name != "CHANGELOG.md":
            yield path, path.read_text()


@cache
def known_tests() -> frozenset[str]:
    """Return the names of all tests and of their files."""
    files = list((ROOT / "test").rglob("test_*.py"))
    names = re.findall(r"def (test_\w+)", "".join(each.read_text() for each in files))
    return frozenset([*names, *(each.stem for each in files)])


def is_module(name: str) -> bool:
    """Return True if a dotted name is a module, or a name in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:count]))
        except ImportError:
            continue
        if spec is not None:
            left = parts[count:]
            if not left:
                return True
            source = Path(spec.origin or "").read_text() if spec.origin else ""
            return re.search(rf"\b{left[0]}\b", source) is not None
    return False


@cache
def rooms() -> Mapping[str, Sequence[Path]]:
    """Return the folders of packages that have rooms, by their names."""
    found: dict[str, list[Path]] = {}
    for package in WITH_ROOMS:
        for path in (package, *package.rglob("*/")):
            found.setdefault(path.name, []).append(path)
    return found


def is_in_room(name: str) -> bool:
    """Return True if a dotted name is a module of a room, or a name in it, or begins with none."""
    room, *parts = name.split(".")
    if room not in rooms():
        return True
    for folder in rooms()[room]:
        left = list(parts)
        while left and (folder / left[0]).is_dir():
            folder = folder / left.pop(0)
        module = folder.joinpath(*left[:1])
        if not left or (
            (source := module.with_suffix(".py")).exists()
            and re.search(rf"\b{'.'.join(left[1:2])}\b", source.read_text())
        ):
            return True
    return False


def stale(path: Path, text: str) -> Iterator[str]:
    """Yield the references of a text that do not exist."""
    for name in set(PATH.findall(text)):
        places = (path.parent, *BASES)
        if not name.startswith(MADE) and not any((base / name).exists() for base in places):
            yield name
    yield from (name for name in set(MODULE.findall(text)) if not is_module(name))
    if any(path.is_relative_to(package) for package in WITH_ROOMS):
        yield from (name for name in set(ROOM.findall(text)) if not is_in_room(name))
    yield from (f"kubectl jobset {name}" for name in set(COMMAND.findall(text)) - COMMANDS.keys())
    if path.suffix == ".md" and path.is_relative_to(ROOT / "test"):
        yield from (name for name in set(TEST.findall(text)) if name not in known_tests())


def test_references_lead_somewhere():
    """Moves and renames are followed in the texts."""
    found = [
        f"{path.relative_to(ROOT)}: {name}" for path, text in texts() for name in stale(path, text)
    ]
    assert sorted(found) == []


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page: those of its headings, and explicit ones."""
    tokens = MarkdownIt("commonmark").parse(text)
    return set(re.findall(r'<a id="([^"]+)"', text)) | {
        slug(re.sub(r"\[(.*?)\]\(.*?\)", r"\1", after.content))
        for token, after in itertools.pairwise(tokens)
        if token.type == "heading_open"
    }


@pytest.mark.parametrize(
    "path", [p for p, _ in texts() if p.suffix == ".md"], ids=lambda p: str(p.relative_to(ROOT))
)
def test_links_of_page_have_targets(path):
    """The file and the heading exist."""
    broken = []
    for target in re.findall(
        r"\]\(([^)\s]+)\)", re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.DOTALL)
    ):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        page = (path.parent / name) if name else path
        if not page.exists() or (
            anchor and page.suffix == ".md" and anchor not in anchors(page.read_text())
        ):
            broken.append(target)
    assert broken == []


def test_exit_codes_of_agents_are_in_their_reference():
    """Each constant has a row."""
    page = (ROOT / "docs/reference/agent.md").read_text()
    codes = [value for name, value in vars(keys).items() if name.endswith("_EXIT_CODE")]

    assert [code for code in codes if f"| agent | {code} |" not in page] == []


def test_table_of_changes_names_files():
    """The first page of who carries on has twenty usual changes, each with a file that exists."""
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## Where do I change")[2]
    rows = re.findall(r"^\| ([^|]+) \| (`[^|]+) \|$", text.partition("\n### ")[0], re.MULTILINE)
    assert len(rows) >= 20
    assert [row for row, place in rows if not PATH.findall(place)] == []
