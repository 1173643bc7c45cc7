"""``logs``: output of all ranks, across restarts, replaced pods and outages of the API server."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any, Final, NamedTuple

from jobsetpy.errors import ApiError, NotFoundError, RetryableApiError, TransportError
from jobsetpy.kubectl import status
from jobsetpy.kubectl.cluster import Cluster
from jobsetpy.kubectl.errors import EXIT_ERROR, CommandError
from jobsetpy.kubectl.output import clean

EVERY_S = 2.0
"""Interval between looks for new pods, in seconds."""
MAX_STREAMS: Final = 32
"""Maximum number of pods that are followed at a time; each needs a connection."""
_LONGEST: Final = 2**16
"""Length of a line, in bytes, after which it is printed in parts."""
_LAST_S: Final = 10.0
"""Time for the last lines of a JobSet that has ended, in seconds."""


class Pod(NamedTuple):
    """A pod with output.

    Args:
        name: name of the pod.
        rank: rank of its node among the workers; ``None`` for a spare.
        container: container of the worker; "" if it is not known.
        ended: True if the pod has succeeded or failed.
    """

    name: str
    rank: int | None
    container: str
    ended: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", metavar="NAME", help="the JobSet")
    parser.add_argument(
        "--rank", metavar="N", type=int, action="append", help="only this rank; may be given again"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="print new lines until the JobSet has ended"
    )


async def run(cluster: Cluster, options: argparse.Namespace) -> int:
    """Print the logs; return 1 if a pod has none to show."""
    if options.follow:
        await follow(cluster, options.name, options.rank)
        return 0
    seen = await status.look(cluster, options.name)
    found = pods_of(seen, options.rank)
    if not found:
        ranks = [pod.rank for pod in pods_of(seen, None) if pod.rank is not None]
        other = f" of --rank {options.rank[0]}, but of 0 to {max(ranks)}" if ranks else ""
        raise CommandError(
            f"error: jobset {options.name} has no pods with logs{other}: logs go with their pods; "
            f"kubectl jobset restarts {options.name} has the causes of its restarts"
        )
    reader = _Reader(cluster)
    return EXIT_ERROR if [pod for pod in found if not await reader.read(pod, follow=False)] else 0


async def follow(cluster: Cluster, name: str, ranks: list[int] | None) -> None:
    """Print lines of all pods, of those that come later as well, until the JobSet has ended."""
    reader, open_streams = _Reader(cluster), dict[str, asyncio.Task[bool]]()
    found, problem = await status.look(cluster, name), ""
    async with asyncio.TaskGroup() as group:
        while True:
            open_streams = {key: task for key, task in open_streams.items() if not task.done()}
            # In an outage nothing is known of the pods, and each attempt would fail as well.
            for pod in [] if problem else pods_of(found, ranks):
                if pod.name in open_streams or pod.name in reader.complete:
                    continue
                if len(open_streams) >= MAX_STREAMS:
                    reader.say(
                        f"following {MAX_STREAMS} pods: others come when these end, or by --rank"
                    )
                    break
                open_streams[pod.name] = group.create_task(reader.read(pod, follow=True))
            if found["state"] in {"Completed", "Failed"}:
                await asyncio.wait(open_streams.values(), timeout=_LAST_S) if open_streams else None
                for task in open_streams.values():
                    task.cancel()
                return
            reader.say(problem or _waiting(found, ranks))
            found, problem = await status.later(cluster, name, found, EVERY_S)


def _waiting(found: dict[str, Any], ranks: list[int] | None) -> str:
    """Return for what a reader waits who sees no line; "" if a pod has a log."""
    if pods_of(found, ranks):
        return ""
    which = f" of rank {', '.join(map(str, ranks))}" if ranks else ""
    return f"waiting for a pod{which} that has started; kubectl jobset status shows the pods"


def pods_of(found: dict[str, Any], ranks: list[int] | None) -> list[Pod]:
    """Return the pods of a described JobSet by rank, spares last.

    The rank is that of the node: its processes have ranks of their own.
    """
    base, jobs = dict[str, int](), [job for item in found["replicatedJobs"] for job in item["jobs"]]
    for job in jobs:
        base[job["name"]] = sum(each["seats"] for each in jobs[: jobs.index(job)])
    out = []
    for job in jobs:
        start = base.get(job.get("worksFor", job["name"]))
        for pod in job["pods"]:
            spare = start is None or "spare" in pod or pod.get("index") is None
            rank = None if spare else (start or 0) + pod["index"]
            if pod["phase"] != "Pending" and (ranks is None or rank in ranks):
                ended = pod["phase"] in {"Succeeded", "Failed"}
                out.append(Pod(pod["name"], rank, pod["container"], ended))
    return sorted(out, key=lambda pod: (pod.rank is None, pod.rank or 0, pod.name))


class _Reader:
    """Prints logs, each line once: after a broken connection they continue where they were.

    Args:
        cluster: the cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._last: dict[str, bytes] = {}
        self._said = ""
        self.complete: set[str] = set()
        """Pods whose last line is printed, and those that are gone."""

    def say(self, text: str) -> None:
        """Print a remark to the user, unless it is the latest one."""
        if text and text != self._said:
            print(clean(text), file=sys.stderr, flush=True)  # noqa: T201
        self._said = text

    async def read(self, pod: Pod, *, follow: bool) -> bool:
        """Print lines that are new; return False if there are none to be had."""
        query = [("timestamps", "true")]
        query += [("follow", "true")] if follow else []
        query += [("container", pod.container)] if pod.container else []
        if last := self._last.get(pod.name):
            # In whole seconds: lines of that second that were printed are skipped by their time.
            query.append(("sinceTime", f"{last[:19].decode()}Z"))
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods/{pod.name}/log"
        try:
            async with self._cluster.stream(path, *query) as stream:
                await self._print(pod, stream)
        except NotFoundError:
            self.complete.add(pod.name)
            self.say(f"pod {pod.name} is gone, and its log with it")
            return False
        except (TransportError, RetryableApiError):
            # One text for all pods: an outage breaks the connections of all of them.
            self.say("a connection broke: its log continues as soon as the API server answers")
            return False
        except ApiError as error:  # such as a container that has not started yet
            self.say(f"{pod.name}: {error.message}")
            return False
        if pod.ended:
            self.complete.add(pod.name)
        return True

    async def _print(self, pod: Pod, stream: Any) -> None:
        rank = "spare" if pod.rank is None else pod.rank
        rest = b""
        while data := await stream.read():
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > _LONGEST:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._line(pod.name, rank, line)
        if rest:
            self._line(pod.name, rank, rest)

    def _line(self, name: str, rank: object, line: bytes) -> None:
        time, _, text = line.partition(b" ")
        if time <= self._last.get(name, b""):
            return
        self._last[name] = time
        shown = clean(text.decode(errors="replace").rstrip("\r"))
        print(f"[{rank} {name}] {shown}", flush=True)  # noqa: T201
