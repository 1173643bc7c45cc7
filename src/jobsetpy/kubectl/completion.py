"""Completion of ``kubectl jobset``, by kubectl's own.

kubectl asks a program ``kubectl_complete-jobset`` for the words that may follow, with those that
are there as arguments, and expects one a line and ``:4`` (no file names) at the end.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from jobsetpy.errors import JobSetPyError
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.kubeconfig import Options

NO_FILES: Final = ":4"
FILES: Final = ":0"

_FILES: Final = frozenset({"FILE", "KUBECONFIG"})


def main(argv: Sequence[str] | None = None) -> int:
    """Print what may follow the words; nothing ever fails here."""
    words = list(sys.argv[1:] if argv is None else argv)
    found, directive = suggestions(words)
    print(*found, directive, sep="\n")  # noqa: T201
    return 0


def suggestions(words: Sequence[str]) -> tuple[list[str], str]:
    """Return candidates for the last word, and kubectl's directive."""
    from jobsetpy.kubectl.main import COMMANDS

    *before, last = words or [""]
    previous = before[-1] if before else ""
    command = next((word for word in before if word in COMMANDS), "")
    actions = _actions(command)
    asked = actions.get(previous)
    directive, found = NO_FILES, list[str]()
    if asked is not None and asked.nargs != 0:
        found = [str(each) for each in asked.choices or ()]
        directive = FILES if asked.metavar in _FILES else NO_FILES
    elif last.startswith("-"):
        found = sorted(flag for flag in actions if flag.startswith("--"))
    elif not command:
        found = list(COMMANDS)
    elif command == "lint":
        directive = FILES
    else:
        found = _jobsets(before)
    return [each for each in found if each.startswith(last)], directive


def _actions(command: str) -> dict[str, argparse.Action]:
    """The flags of a command, or those that stand before any, by their words."""
    from jobsetpy.kubectl.main import parsers

    top, commands = parsers(command)
    return {
        word: action
        for action in commands.get(command, top)._actions  # noqa: SLF001 - no other way
        for word in action.option_strings
    }


def _jobsets(before: Sequence[str]) -> list[str]:
    from jobsetpy.kubectl.main import import_msgspec

    import_msgspec()
    from jobsetpy.kubectl.cluster import Cluster, run

    async def names(cluster: Cluster) -> list[str]:
        return [each["metadata"]["name"] for each in await cluster.jobsets()]

    try:
        return run(_options(before), os.environ, names)
    except (CommandError, JobSetPyError):
        return []


def _options(before: Sequence[str]) -> Options:
    from jobsetpy.kubectl.main import FLAGS

    given: dict[str, str] = {}
    for flag, short, _ in FLAGS:
        for name in filter(None, (flag, short)):
            for word, value in pairwise(before):
                if word == name:
                    given[flag[2:]] = value
    return Options(**given)
