"""``list``: all JobSets, a line for each."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from jobsetpy.aio import LoopClock
from jobsetpy.api import keys
from jobsetpy.errors import ApiError
from jobsetpy.kubectl import output, timeline
from jobsetpy.kubectl.cluster import JOBSETS, Cluster
from jobsetpy.kubectl.objects import IDLE, annotations_of, describe
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, text

COLUMNS: Final = (
    *("NAMESPACE", "NAME", "STATE", "EPOCH", "STEP", "STEPS/S", "RESTARTS", "RUNNING", "AGE"),
)
FULL: Final = 10
"""Number of restarts in a full history: what was before them is not known."""
_PACE: Final = re.compile(r"([0-9]{1,19}) ([0-9.]{1,12})")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")


async def run(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print the JobSets."""
    everywhere, now = options.all_namespaces, LoopClock().now().astimezone(UTC)
    where = "" if everywhere else f"/namespaces/{cluster.namespace}"
    jobsets = await cluster.items(f"{JOBSETS}{where}/jobsets")
    # One pod of each Job reports the step; the others' reports would be as many as there are pods.
    index = f"{keys.JOBSET_NAME},{keys.COMPLETION_INDEX_ANNOTATION}=0"
    try:
        pods = await cluster.items(f"/api/v1{where}/pods", ("labelSelector", index))
    except ApiError:  # no right to list them: steps are those in the status
        pods = []
    notes: dict[tuple[str, str], list[Json]] = {}
    for pod in pods:
        meta = pod["metadata"]
        name = text(child(meta, "labels"), keys.JOBSET_NAME)
        notes.setdefault((meta.get("namespace", ""), name), []).append(annotations_of(pod))
    found = [
        entry(each, notes.get((each["metadata"]["namespace"], each["metadata"]["name"]), ()), now)
        for each in jobsets
    ]
    if options.output:
        output.write(found, options.output)
    elif not found:
        print("No JobSets found.")  # noqa: T201
    else:
        shown = int(not everywhere)
        rows = [_cells(each, now)[shown:] for each in found]
        styles = [output.STYLES.get(each["state"], "") for each in found]
        print(*output.table(COLUMNS[shown:], rows, styles), sep="\n")  # noqa: T201
    return 0


def entry(jobset: Json, notes: Sequence[Json], now: datetime) -> dict[str, Any]:
    """Return what is listed of a JobSet.

    Args:
        jobset: the JobSet.
        notes: annotations of pods that report steps.
        now: the present time.
    """
    found, status = describe(jobset, (), ()), jobset.get("status") or {}
    if found["state"] in IDLE:  # a pace is left over of a worker that has ended
        notes = [{key: each[key] for key in each if key != keys.PACE_ANNOTATION} for each in notes]
    paces = [_pace(each) for each in notes]
    texts = [each.get(keys.PROGRESS_ANNOTATION) or "" for each in notes]
    steps = [int(text) for text in (*texts, *(step for step, _ in paces)) if text.isdecimal()]
    highest = (status.get("inPlaceRestart") or {}).get("highestStep")
    counts = found["restarts"]
    return {
        **{key: found[key] for key in ("namespace", "name", "state", "created")},
        "epoch": found.get("epoch", {}).get("synced"),
        "step": max([*steps, *([] if highest is None else [highest])], default=None),
        "stepsPerSecond": max((float(rate) for _, rate in paces if rate), default=0.0) or None,
        "restarts": counts["inPlace"] + counts["notCounted"] + counts["all"] + counts["single"],
        "running": running_share(jobset, now),
    }


def running_share(jobset: Json, now: datetime) -> float | None:
    """Return the share of the time, as far as it is known, in which no restart was under way.

    ``None`` for a JobSet that has not been restarted.
    """
    history: Sequence[Json] = items(child(jobset, "status"), "restartHistory")
    since = output.parse_time(jobset["metadata"].get("creationTimestamp"))
    if len(history) >= FULL:
        since = output.parse_time(history[0].get("beganAt"))
    if not history or since is None or now <= since:
        return None
    down = 0.0
    for record in history:
        if (millis := timeline.total(record)) is not None:
            down += millis / 1000
        elif began := output.parse_time(record.get("beganAt")):
            down += 0.0 if record.get("outcome") else (now - began).total_seconds()
    return max(0.0, 1 - down / (now - since).total_seconds())


def _pace(notes: Json) -> tuple[str, str]:
    """Return the step and the steps per second of the last minute; "" if they are not known."""
    found = _PACE.fullmatch(str(notes.get(keys.PACE_ANNOTATION) or ""))
    return (found[1], found[2]) if found else ("", "")


def _cells(each: dict[str, Any], now: datetime) -> list[str]:
    rate, running = each["stepsPerSecond"], each["running"]
    texts = [each[key] for key in ("namespace", "name", "state", "epoch", "step")]
    return [
        *("" if text is None else str(text) for text in texts),
        "" if rate is None else f"{rate:.3g}",
        str(each["restarts"]),
        "" if running is None else f"{running:.2%}",
        output.ago(each["created"], now),
    ]
