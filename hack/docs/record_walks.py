"""Record walks through pages of the documentation: their commands, and the output of each.

    record_walks.py            write bench/walk-user.md and bench/walk-operator.md
    record_walks.py user       only one of them

The pages' test (test/e2e/test_documentation_node.py) runs their commands in the order of the walk:
the first five minutes of a user, from a fresh clone, and the first hour of an operator, on a new
cluster with one real node.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TEST: Final = "test/e2e/test_documentation_node.py::test_commands_of_a_page_work"
FRESH: Final = f"{TEST}_from_a_fresh_clone"
AFTER: Final = ("alerts", "troubleshooting", "upgrade")
WALKS: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "user": (
        "Recording: a user's first five minutes",
        (
            "The commands of [your first JobSet](../docs/tutorial/first-jobset.md), and their "
            "output. The ninth kills a worker; the twelfth shows that all four continue in their "
            "pods. Before `make cluster` and `kubectl jobset create`, it took 17 commands from "
            "pages of 10,900 words."
        ),
        ("tutorial/first-jobset",),
    ),
    "operator": (
        "Recording: an operator's first hour",
        "The commands of the pages that an operator reads first, and their output.",
        ("how-to/install", "how-to/operate", *(f"how-to/{name}" for name in AFTER)),
    ),
}
"""Title, introduction and pages of each walk."""
HOW: Final = (
    "Recorded by `make recordings` on a cluster with one node; names and times differ each time."
)


def record(walk: str) -> None:
    """Run the pages of a walk and write its page.

    Raises:
        CalledProcessError: a command of a page failed.
    """
    title, about, pages = WALKS[walk]
    parts = [f"# {title}", "", about, "", HOW]
    with tempfile.TemporaryDirectory() as folder:
        names = [page.rpartition("/")[2] for page in pages]
        words = [sys.executable, "-m", "pytest", "-q", "-m", "node"]
        tests = [f"{FRESH if walk == 'user' else TEST}[{name}]" for name in names]
        environ = {**os.environ, "JOBSETPY_SEEN": folder}
        subprocess.run([*words, *tests], cwd=ROOT, env=environ, check=True, timeout=3600)
        for page, name in zip(pages, names, strict=True):
            parts += ["", f"## [{name}](../docs/{page}.md)", ""]
            parts.append(Path(folder, f"{name}.md").read_text().rstrip())
    (ROOT / f"bench/walk-{walk}.md").write_text("\n".join(parts) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("walks", nargs="*", choices=[*WALKS], help="default: both")
    for walk in parser.parse_args().walks or WALKS:
        record(walk)


if __name__ == "__main__":
    main()
