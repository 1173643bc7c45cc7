"""State of a JobSet that commands show, derived from its objects by the controllers' own rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from jobsetpy.api import keys
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.model import InPlaceRestart, JobSet
from jobsetpy.reconcilers.restart_in_place.barrier_state import (
    holds_job,
    holds_seat,
    is_waiting,
    next_epoch,
    parse_epoch,
)
from jobsetpy.reconcilers.rules import restart_budget

Json = Mapping[str, Any]
T = TypeVar("T")

PARKED: Final = -1
"""In place of a pod's seat if it has none."""


def typed(cls: type[T], data: Json) -> T:
    """A wire object of JSON data.

    Raises:
        CommandError: it is none, of another version perhaps.
    """
    try:
        return msgspec.json.decode(msgspec.json.encode(data), type=cls)
    except msgspec.ValidationError as problem:
        raise CommandError(
            f"error: the server's {cls.__name__} cannot be read: {problem}"
        ) from problem


def owned(objects: Iterable[Json], uids: set[str]) -> list[Json]:
    """Those whose controller is one of these, by name: labels prove nothing."""
    out = [
        each
        for each in objects
        if any(
            ref.get("controller") and ref.get("uid") in uids
            for ref in each["metadata"].get("ownerReferences") or ()
        )
    ]
    return sorted(out, key=lambda each: _natural(each["metadata"]["name"]))


def describe(jobset: Json, jobs: Sequence[Json], pods: Sequence[Json]) -> dict[str, Any]:
    """A JobSet with its Jobs and pods, as ``status`` shows it."""
    model = typed(JobSet, jobset)
    status, policy = model.status, model.spec.failure_policy
    in_place = policy is not None and policy.restart_strategy == keys.IN_PLACE_RESTART
    done = status.in_place_restart or InPlaceRestart()
    meta = jobset["metadata"]
    mine = owned(jobs, {meta["uid"]})
    of_jobs: dict[str, list[Json]] = {}
    for pod in owned(pods, {job["metadata"]["uid"] for job in mine}):
        of_jobs.setdefault(_controller(pod), []).append(pod)
    out: dict[str, Any] = {
        "name": meta["name"],
        "namespace": meta["namespace"],
        "state": status.state or _state(jobset),
        "created": meta.get("creationTimestamp"),
        "restarts": {
            "inPlace": done.restarts,
            "notCounted": done.uncounted_epochs,
            "all": status.restarts,
            "single": sum(sum(item.job_restarts) for item in status.replicated_jobs_status),
        },
    }
    if policy is not None:
        spent = restart_budget.spent(status)
        out["budget"] = {
            "max": policy.max_restarts,
            "spent": spent,
            "left": max(0, policy.max_restarts - spent),
        }
    if in_place:
        out["epoch"] = {"synced": status.synced_epoch, "deprecated": status.deprecated_epoch}
        working = [
            pod
            for job in mine
            for pod in of_jobs.get(job["metadata"]["uid"], ())
            if _seat(job, pod, done) != PARKED
        ]
        out["barrier"] = _barrier(model, working, jobset)
        parked = [job for job in mine if not _works_for(job, done)]
        spares = sum(_parallelism(job) if job in parked else _spares(job) or 0 for job in mine)
        with_jobs = any(_spare_jobs(job) for job in mine)
        if spares or with_jobs:
            whole = {"jobs": len(parked)} if with_jobs else {}
            out["spares"] = {"ready": done.ready_spares or 0, "of": spares, **whole}
    out["conditions"] = [
        {key: each.get(key) for key in ("type", "reason", "message", "lastTransitionTime")}
        for each in jobset.get("status", {}).get("conditions") or ()
        if each.get("status") == "True"
    ]
    out["replicatedJobs"] = [
        {
            "name": item.name,
            "replicas": item.replicas,
            "jobs": [
                _job(job, of_jobs.get(job["metadata"]["uid"], []), done)
                for job in mine
                if job["metadata"].get("labels", {}).get(keys.REPLICATED_JOB_NAME) == item.name
            ],
        }
        for item in model.spec.replicated_jobs
    ]
    return out


def _state(jobset: Json) -> str:
    """Return the state of a JobSet whose status was written by another controller, or by none."""
    from jobsetpy.api.jobset import JobSet
    from jobsetpy.reconcilers.rules.summary import state

    return state(typed(JobSet, jobset))


def _barrier(model: JobSet, pods: list[Json], jobset: Json) -> dict[str, Any]:
    live = [
        pod for pod in pods if pod.get("status", {}).get("phase") not in {"Failed", "Succeeded"}
    ]
    epochs: dict[int, int] = {}
    for pod in live:
        epoch = _epoch(pod)
        if epoch > 0:
            epochs[epoch] = epochs.get(epoch, 0) + 1
    if not is_waiting(model.status, epochs):
        return {"closed": False}
    wanted = next_epoch(model.status, epochs)
    late = [pod for pod in live if _epoch(pod) != wanted]
    return {
        "closed": True,
        "epoch": wanted,
        "since": _closed_since(jobset),
        "waitsFor": [
            {"pod": pod["metadata"]["name"], "node": _node(pod), "why": _why(pod)} for pod in late
        ],
    }


def _closed_since(jobset: Json) -> Any:
    status = jobset.get("status", {})
    history = status.get("restartHistory") or ()
    if history and not history[-1].get("outcome"):
        return history[-1].get("beganAt")
    if status.get("syncedEpoch"):
        for each in status.get("conditions") or ():
            if each["type"] == keys.RESTARTING_IN_PLACE_CONDITION and each["status"] == "True":
                return each.get("lastTransitionTime")
    return jobset["metadata"].get("creationTimestamp")


def _spares(job: Json) -> int | None:
    """Number of spares of a Job; ``None`` if its JobSet has none."""
    return _number(job, keys.IN_PLACE_SPARES_ANNOTATION)


def _spare_jobs(job: Json) -> int:
    """Number of spare Jobs of a Job's ReplicatedJob."""
    return _number(job, keys.IN_PLACE_SPARE_JOBS_ANNOTATION) or 0


def _parallelism(job: Json) -> int:
    found: int = job.get("spec", {}).get("parallelism", 1)
    return found


def _works_for(job: Json, done: InPlaceRestart) -> str:
    """Name of the Job whose seats the pods of a Job hold, its own mostly; "" for a spare Job."""
    meta, spares = job["metadata"], _spare_jobs(job)
    taken = {one.job: one.holder for one in done.taken_jobs}
    replicas = _number(job, keys.REPLICATED_JOB_REPLICAS) or 0
    working = replicas - spares if spares else 0
    if not holds_job(meta["name"], _number(job, keys.JOB_INDEX) or 0, working, taken):
        return ""
    return next((name for name, holder in taken.items() if holder == meta["name"]), meta["name"])


def _number(each: Json, annotation: str) -> int | None:
    text = (each["metadata"].get("annotations") or {}).get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else None


def _seat(job: Json, pod: Json, done: InPlaceRestart) -> int | None:
    """Seat of a pod, ``PARKED`` if it has none; ``None`` where the JobSet has no spares."""
    if not _works_for(job, done):
        return PARKED
    spares, index = _spares(job), _number(pod, keys.COMPLETION_INDEX_ANNOTATION)
    if spares is None or index is None:
        return None
    name, uid = job["metadata"]["name"], pod["metadata"]["uid"]
    taken = {one.seat: one.pod_uid for one in done.taken_seats if one.job == name}
    if not holds_seat(uid, index, _parallelism(job) - spares, taken):
        return PARKED
    return next((seat for seat, holder in taken.items() if holder == uid), index)


def _job(job: Json, pods: list[Json], done: InPlaceRestart) -> dict[str, Any]:
    status = job.get("status", {})
    word = "Running"
    for each in status.get("conditions") or ():
        if each["status"] == "True" and each["type"] in {"Complete", "Failed", "Suspended"}:
            word = "Completed" if each["type"] == "Complete" else each["type"]
    if job["metadata"].get("deletionTimestamp"):
        word = "Terminating"
    name, works_for = job["metadata"]["name"], _works_for(job, done)
    return {
        "name": name,
        "state": word,
        **({} if works_for == name else {"worksFor": works_for}),
        "ready": status.get("ready") or 0,
        "succeeded": status.get("succeeded") or 0,
        "parallelism": _parallelism(job),
        "pods": [_pod(pod, _seat(job, pod, done)) for pod in pods],
    }


def _pod(pod: Json, seat: int | None) -> dict[str, Any]:
    status = pod.get("status", {})
    containers = status.get("containerStatuses") or ()
    ready = any(
        c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ()
    )
    out: dict[str, Any] = {
        "name": pod["metadata"]["name"],
        "phase": "Terminating" if pod["metadata"].get("deletionTimestamp") else status.get("phase"),
        "node": _node(pod),
        "ready": ready,
        "restarts": max((each.get("restartCount", 0) for each in containers), default=0),
    }
    epoch = _epoch(pod)
    if epoch > 0:
        out["epoch"] = epoch
    if seat == PARKED:
        notes = pod["metadata"].get("annotations") or {}
        out["spare"] = notes.get(keys.AGENT_STATE_ANNOTATION) or "starting"
    elif seat is not None:
        out["seat"] = seat
    waiting = _waiting(pod)
    if waiting:
        out["waiting"] = waiting
    return out


def _why(pod: Json) -> str:
    waiting = _waiting(pod)
    if pod["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    if not _node(pod):
        return f"it has no node: {waiting}" if waiting else "it has no node"
    epoch = _epoch(pod)
    where = f"it is at epoch {epoch}" if epoch > 0 else "its agent has not come yet"
    return f"{where} ({waiting})" if waiting else where


def _waiting(pod: Json) -> str:
    """Why a pod does not run: it has no node, or the reason of its first container that waits."""
    status = pod.get("status", {})
    for each in status.get("conditions") or ():
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return str(each.get("reason") or "")
    for kind in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(kind) or ():
            reason = (each.get("state", {}).get("waiting") or {}).get("reason")
            if reason:
                return str(reason)
    return ""


def _epoch(pod: Json) -> int:
    return parse_epoch((pod["metadata"].get("annotations") or {}).get(keys.EPOCH_ANNOTATION))


def _node(pod: Json) -> str:
    node: str = pod.get("spec", {}).get("nodeName") or ""
    return node


def _controller(each: Json) -> str:
    refs = each["metadata"].get("ownerReferences") or ()
    return next((ref["uid"] for ref in refs if ref.get("controller")), "")


def _natural(name: str) -> tuple[Any, ...]:
    return tuple(int(part) if part.isdigit() else part for part in _split(name))


def _split(name: str) -> list[str]:
    # Digits and the rest by turns, so that numbers are never compared with text.
    out, digits = [""], False
    for letter in name:
        if letter.isdigit() != digits:
            digits = not digits
            out.append("")
        out[-1] += letter
    return out
