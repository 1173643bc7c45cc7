"""Generated files: write them, or compare them with the generator's output."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def write_or_compare(
    outputs: Iterable[tuple[str, str]], description: str, argv: Sequence[str]
) -> int:
    """Write files that differ, or show differences with ``--verify``; return the exit code.

    Args:
        outputs: paths relative to the repository's root, and texts.
        description: description of the command; its first line is shown as help.
        argv: arguments of the command.
    """
    return settle(outputs, verify=parser_for(description).parse_args(argv).verify)


def parser_for(description: str) -> argparse.ArgumentParser:
    """Return a parser with the option ``--verify``."""
    parser = argparse.ArgumentParser(description=description.split("\n", maxsplit=1)[0])
    parser.add_argument("--verify", action="store_true", help="write nothing, report differences")
    return parser


def settle(outputs: Iterable[tuple[str, str]], *, verify: bool, root: Path = ROOT) -> int:
    """Write files that differ, or show the differences; return the exit code."""
    changed = False
    for name, text in outputs:
        path = root / name
        old = path.read_text() if path.exists() else ""
        if old == text:
            continue
        changed = True
        if verify:
            lines = difflib.unified_diff(
                old.splitlines(), text.splitlines(), name, "generated", lineterm="", n=1
            )
            print("\n".join(list(lines)[:40]))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {name}")
    return 1 if changed and verify else 0
