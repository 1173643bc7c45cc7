"""``restarts``: the last restarts of a JobSet, as a table or a picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from jobsetpy.kubectl import output, timeline
from jobsetpy.kubectl.cluster import Cluster
from jobsetpy.kubectl.errors import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", metavar="NAME", help="the JobSet")
    parser.add_argument("--svg", metavar="FILE", help="draw them into a file; - for the output")


async def run(cluster: Cluster, options: argparse.Namespace) -> int:
    """Show the restarts."""
    jobset = await cluster.jobset(options.name)
    status = jobset.get("status") or {}
    history = status.get("restartHistory") or []
    title = f"Restarts of {cluster.namespace}/{options.name}"
    if pods := (status.get("inPlaceRestart") or {}).get("pods"):
        title += f", {pods} pods"
    if options.svg:
        save(timeline.svg(title, history), options.svg)
    elif options.output:
        output.write(history, options.output)
    elif history:
        _print(history)
    else:
        print(_nothing(jobset, options.name))  # noqa: T201
    return 0


def _print(history: list[dict[str, object]]) -> None:
    columns, rows = timeline.table(history)
    rows.reverse()
    styles = [output.STYLES.get(row[-1], "") if row[-1] != "Completed" else "" for row in rows]
    print(*output.table(columns, rows, styles), sep="\n")  # noqa: T201


def _nothing(jobset: dict[str, Any], name: str) -> str:
    if counted := (jobset.get("status") or {}).get("restarts"):
        return (
            f"{name} has been restarted {counted} times, but its status has no history: another "
            "controller or an older CRD of JobSets is installed"
        )
    return f"No restarts of {name}."


def save(text: str, file: str) -> None:
    """Write a picture to a file, or to the output for ``-``."""
    if file == "-":
        print(text, end="")  # noqa: T201
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise CommandError(f"error: cannot write {file}: {problem.strerror}") from problem
