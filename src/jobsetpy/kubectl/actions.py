"""``restart``, ``suspend`` and ``resume``: what changes a JobSet, by the levers that it has."""

from __future__ import annotations

import argparse
from typing import Any

from jobsetpy.aio import LoopClock
from jobsetpy.api import keys
from jobsetpy.api.timestamps import micros_text, seconds_text
from jobsetpy.kubectl import output
from jobsetpy.kubectl.cluster import JOBSETS, MERGE_PATCH, Cluster
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.objects import Json, owned


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands' arguments."""
    parser.add_argument("name", metavar="NAME", help="the JobSet")
    parser.add_argument(
        "--dry-run",
        choices=("none", "server"),
        default="none",
        help="server: ask the API server, without changing anything",
    )
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
    """Carry out one of the three."""
    jobset = await cluster.jobset(options.name)
    end = _end(jobset)
    if end:
        raise CommandError(f'error: jobset "{options.name}" has ended ({end}) and stays as it is')
    if options.command == "restart":
        return await _restart(cluster, options, jobset)
    return await _suspend(cluster, options, jobset, suspend=options.command == "suspend")


async def _suspend(
    cluster: Cluster, options: argparse.Namespace, jobset: dict[str, Any], *, suspend: bool
) -> int:
    word = "suspended" if suspend else "resumed"
    path = f"{JOBSETS}/namespaces/{cluster.namespace}/jobsets/{options.name}"
    meta = jobset["metadata"]
    if bool(jobset.get("spec", {}).get("suspend")) is suspend:
        _print(options, f"jobset.jobset.x-k8s.io/{options.name} {word} (no change)")
        _write(options, jobset)
        return 0
    body = {"metadata": {"uid": meta["uid"]}, "spec": {"suspend": suspend}}
    stored = await cluster.send(
        "PATCH", path, body, query=_query(options), content_type=MERGE_PATCH
    )
    _print(options, f"jobset.jobset.x-k8s.io/{options.name} {word}")
    _write(options, stored)
    return 0


async def _restart(cluster: Cluster, options: argparse.Namespace, jobset: dict[str, Any]) -> int:
    if jobset.get("spec", {}).get("suspend"):
        raise CommandError(f'error: jobset "{options.name}" is suspended; resume it instead')
    if options.in_place:
        return await _restart_in_place(cluster, options, jobset)
    jobs = [
        job
        for job in owned(await cluster.jobs(options.name), {jobset["metadata"]["uid"]})
        if not job["metadata"].get("deletionTimestamp")
    ]
    chosen = []
    for job in _chosen(options, jobs):
        name = job["metadata"]["name"]
        at = seconds_text(LoopClock().now())
        body = {
            "metadata": {
                "uid": job["metadata"]["uid"],
                "annotations": {keys.RESTART_ANNOTATION: at},
            }
        }
        stored = await cluster.send(
            "PATCH",
            f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs/{name}",
            body,
            query=_query(options),
            content_type=MERGE_PATCH,
        )
        chosen.append(stored)
        _print(options, f"job.batch/{name} restarted")
    _write(options, *chosen)
    return 0


async def _restart_in_place(
    cluster: Cluster, options: argparse.Namespace, jobset: dict[str, Any]
) -> int:
    policy = jobset.get("spec", {}).get("failurePolicy") or {}
    if policy.get("restartStrategy") != "InPlaceRestart":
        raise CommandError(
            f'error: jobset "{options.name}" does not restart in place: its '
            "spec.failurePolicy.restartStrategy is not InPlaceRestart"
        )
    at = micros_text(LoopClock().now())
    body = {
        "metadata": {
            "uid": jobset["metadata"]["uid"],
            "annotations": {keys.RESTART_IN_PLACE_ANNOTATION: at},
        }
    }
    path = f"{JOBSETS}/namespaces/{cluster.namespace}/jobsets/{options.name}"
    stored = await cluster.send(
        "PATCH", path, body, query=_query(options), content_type=MERGE_PATCH
    )
    _print(options, f"jobset.jobset.x-k8s.io/{options.name} restarts in place")
    _write(options, stored)
    return 0


def _chosen(options: argparse.Namespace, jobs: list[Json]) -> list[Json]:
    if options.job:
        by_name = {job["metadata"]["name"]: job for job in jobs}
        missing = [name for name in options.job if name not in by_name]
        if missing:
            raise CommandError(f'error: jobset "{options.name}" has no job "{missing[0]}"')
        return [by_name[name] for name in options.job]
    if options.replicated_job:
        of_it = options.replicated_job
        found = [
            job
            for job in jobs
            if job["metadata"].get("labels", {}).get(keys.REPLICATED_JOB_NAME) == of_it
        ]
        if not found:
            raise CommandError(f'error: jobset "{options.name}" has no jobs of "{of_it}"')
        return found
    if not jobs:
        raise CommandError(f'error: jobset "{options.name}" has no jobs to restart')
    return jobs


def _query(options: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    return (("dryRun", "All"),) if options.dry_run == "server" else ()


def _print(options: argparse.Namespace, text: str) -> None:
    """To people, as soon as it is done."""
    if not options.output:
        print(f"{text} (server dry run)" if options.dry_run == "server" else text)  # noqa: T201


def _write(options: argparse.Namespace, *stored: dict[str, Any]) -> None:
    """For programs, one document: the object, or a list of several."""
    if options.output:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(stored)}
        output.write(stored[0] if len(stored) == 1 else listed, options.output)


def _end(jobset: dict[str, Any]) -> str:
    for each in jobset.get("status", {}).get("conditions") or ():
        if each["status"] == "True" and each["type"] in {"Completed", "Failed"}:
            return str(each["type"])
    return ""
