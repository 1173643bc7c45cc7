"""``restart``, ``suspend``, ``resume``, ``scale``: change a JobSet by its fields."""

from __future__ import annotations

import argparse
import copy
from collections.abc import AsyncIterator
from typing import Any, Final

from jobsetpy.aio import LoopClock
from jobsetpy.api import keys
from jobsetpy.api.annotations import read
from jobsetpy.api.timestamps import micros_text, seconds_text
from jobsetpy.kubectl import output
from jobsetpy.kubectl.cluster import JOBSETS, MERGE_PATCH, Cluster
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.objects import annotations_of, conditions_of, owned
from jobsetpy.reconcilers.rules.json_tree import Json

_JOBS: Final = "/apis/batch/v1/namespaces/{}/jobs/{}"
_ENDS: Final = (keys.COMPLETED_CONDITION, keys.FAILED_CONDITION)
_JOBSETS: Final = JOBSETS + "/namespaces/{}/jobsets/{}"

Changes = AsyncIterator[tuple[str, Json]]
"""Each change in words, and the object as it is stored now."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands' arguments."""
    parser.add_argument("name", metavar="NAME", help="the JobSet")
    parser.add_argument(
        "--dry-run",
        choices=("none", "server"),
        default="none",
        help="server: ask the API server, without changing anything",
    )
    if parser.prog.endswith(" scale"):
        parser.add_argument(
            "--nodes", metavar="N", type=output.at_least(1), required=True,
            help="pods of each Job that train; suspend takes away all",
        )  # fmt: skip
        parser.add_argument("--replicated-job", metavar="NAME", help="only the Jobs of this one")
    if not parser.prog.endswith(" restart"):
        return
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--job", metavar="JOB", action="append", help="only this Job; may be given again"
    )
    which.add_argument("--replicated-job", metavar="NAME", help="only the Jobs of this one")
    which.add_argument(
        "--in-place",
        action="store_true",
        help="restart the workers where they are, with time for a checkpoint (InPlaceRestart only)",
    )


async def run(cluster: Cluster, options: argparse.Namespace) -> int:
    """Run one of the commands."""
    jobset = await cluster.jobset(options.name)
    if end := next((each for each in _ENDS if each in conditions_of(jobset)), ""):
        raise CommandError(f'error: jobset "{options.name}" has ended ({end}) and stays as it is')
    stored = []
    act = {"restart": _restart, "scale": _scale}.get(options.command, _suspend)
    async for text, changed in act(cluster, options, jobset):
        stored.append(changed)
        if not options.output:  # programs get the objects instead
            print(f"{text} (server dry run)" if options.dry_run == "server" else text)  # noqa: T201
    if options.output:
        listed = {"apiVersion": "v1", "kind": "List", "items": stored}
        output.write(stored[0] if len(stored) == 1 else listed, options.output)
    return 0


async def _suspend(cluster: Cluster, options: argparse.Namespace, jobset: Json) -> Changes:
    suspend = options.command == "suspend"
    text = f"jobset.jobset.x-k8s.io/{options.name} {'suspended' if suspend else 'resumed'}"
    if bool(jobset.get("spec", {}).get("suspend")) is suspend:
        yield f"{text} (no change)", jobset
    else:
        yield text, await _patch(cluster, options, _JOBSETS, jobset, spec={"suspend": suspend})


async def _scale(cluster: Cluster, options: argparse.Namespace, jobset: Json) -> Changes:
    items = copy.deepcopy(jobset["spec"]["replicatedJobs"])
    only = options.replicated_job
    chosen = [each for each in items if only in {None, each["name"]}]
    if not chosen:
        raise CommandError(f'error: jobset "{options.name}" has no replicatedJob "{only}"')
    for item in chosen:
        spec = item["template"]["spec"]
        if not spec.get("parallelism") or spec["parallelism"] != spec.get("completions"):
            raise CommandError(
                f"error: the Jobs of {item['name']} cannot be resized: their parallelism and "
                "completions are not set to the same number"
            )
        own = annotations_of({"metadata": item["template"].get("metadata") or {}})
        if read(keys.IN_PLACE_SPARES_ANNOTATION, own, annotations_of(jobset), default=0):
            raise CommandError(
                f"error: the Jobs of {item['name']} cannot be resized: they have spares, and the "
                "ranks are built into their pods; create the JobSet again"
            )
        spec["parallelism"] = spec["completions"] = options.nodes
    # The list is replaced as a whole, so it must still be the one that was read.
    stored = await _patch(
        cluster, options, _JOBSETS, jobset, spec={"replicatedJobs": items}, unchanged=True
    )
    yield f"jobset.jobset.x-k8s.io/{options.name} scaled to {options.nodes}", stored


async def _restart(cluster: Cluster, options: argparse.Namespace, jobset: Json) -> Changes:
    spec = jobset.get("spec", {})
    if spec.get("suspend"):
        raise CommandError(f'error: jobset "{options.name}" is suspended; resume it instead')
    if options.in_place:
        if (spec.get("failurePolicy") or {}).get("restartStrategy") != keys.IN_PLACE_RESTART:
            raise CommandError(
                f'error: jobset "{options.name}" does not restart in place: its '
                "spec.failurePolicy.restartStrategy is not InPlaceRestart"
            )
        at = {keys.RESTART_IN_PLACE_ANNOTATION: micros_text(LoopClock().now())}
        stored = await _patch(cluster, options, _JOBSETS, jobset, annotations=at)
        yield f"jobset.jobset.x-k8s.io/{options.name} restarts in place", stored
        return
    jobs = [
        job
        for job in owned(await cluster.jobs(options.name), {jobset["metadata"]["uid"]})
        if not job["metadata"].get("deletionTimestamp")
    ]
    for job in _chosen(options, jobs):
        at = {keys.RESTART_ANNOTATION: seconds_text(LoopClock().now())}
        stored = await _patch(cluster, options, _JOBS, job, annotations=at)
        yield f"job.batch/{job['metadata']['name']} restarted", stored


def _chosen(options: argparse.Namespace, jobs: list[Json]) -> list[Json]:
    names, item = options.job or (), options.replicated_job
    known = {job["metadata"]["name"]: job for job in jobs}
    if unknown := [name for name in names if name not in known]:
        raise CommandError(f'error: jobset "{options.name}" has no job "{unknown[0]}"')
    found = [
        known[name]
        for name in names or known
        if item in (None, known[name]["metadata"]["labels"].get(keys.REPLICATED_JOB_NAME))
    ]
    if not found:
        what = f'of "{item}"' if item else "to restart"
        raise CommandError(f'error: jobset "{options.name}" has no jobs {what}')
    return found


async def _patch(
    cluster: Cluster,
    options: argparse.Namespace,
    path: str,
    found: Json,
    *,
    annotations: Json | None = None,
    unchanged: bool = False,
    **change: Json,
) -> dict[str, Any]:
    """Change an object unless it was replaced by another of the same name; return it as stored."""
    meta = found["metadata"]
    changed: dict[str, Any] = {"uid": meta["uid"]}
    if unchanged:
        changed["resourceVersion"] = meta["resourceVersion"]
    if annotations:
        changed["annotations"] = annotations
    return await cluster.send(
        "PATCH",
        path.format(cluster.namespace, meta["name"]),
        {**change, "metadata": changed},
        query=(("dryRun", "All"),) if options.dry_run == "server" else (),
        content_type=MERGE_PATCH,
    )
