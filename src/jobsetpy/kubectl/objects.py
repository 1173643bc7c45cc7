"""State of a JobSet that commands show, derived from its objects by the controllers' own rules.

The manager's models are attrs classes with schemas and all that the rules need, whose import takes
longer than everything else that a question to the API server needs. The classes here are the same
objects, cut down to what is shown; the rules that are asked take either.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from jobsetpy.api import keys
from jobsetpy.api.epoch_report import parse_epoch
from jobsetpy.api.structs import SeatLists
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.timeline import exit_text
from jobsetpy.reconcilers.rules import restart_budget
from jobsetpy.reconcilers.rules.barrier_state import holds_job, holds_seat, is_waiting, next_epoch
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, text

T = TypeVar("T")

IDLE: Final = frozenset({"Completed", "Failed", "Suspended"})
"""States without a barrier and spares: whatever pods are left, nothing waits for them."""
PARKED: Final = -1
"""Value instead of the seat of a pod without one."""


class FailurePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """``spec.failurePolicy``."""

    max_restarts: int = 0
    restart_strategy: str = ""


class ReplicatedJob(msgspec.Struct, frozen=True, rename="camel"):
    """One of ``spec.replicatedJobs``."""

    name: str = ""
    replicas: int = 1


class JobSetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a JobSet."""

    failure_policy: FailurePolicy | None = None
    active_deadline_seconds: int | None = None
    replicated_jobs: tuple[ReplicatedJob, ...] = ()


class InPlaceRestart(SeatLists, frozen=True, rename="camel"):
    """``status.inPlaceRestart``."""

    restarts: int = 0
    uncounted_epochs: int = 0
    last_uncounted_epoch: int = 0
    ready_spares: int | None = None

    def missing(self, job: str) -> int:
        """Return the number of seats that a Job does without."""
        return next((one.missing for one in self.job_sizes if one.job == job), 0)


class ReplicatedJobStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One of ``status.replicatedJobsStatus``."""

    job_restarts: tuple[int, ...] = ()
    job_restarts_count_towards_max: tuple[int, ...] = ()


class JobSetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``status`` of a JobSet."""

    restarts: int = 0
    restarts_count_towards_max: int = 0
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = ()
    synced_epoch: int = 0
    deprecated_epoch: int = 0
    in_place_restart: InPlaceRestart | None = None
    state: str = ""
    start_time: str | None = None
    execution_attempts: int | None = None


class JobSet(msgspec.Struct, frozen=True):
    """The plugin's slice of a JobSet."""

    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


def typed(cls: type[T], data: Json) -> T:
    """Decode JSON data as a wire object.

    Raises:
        CommandError: the data does not fit, perhaps because it is of another version.
    """
    try:
        return msgspec.json.decode(msgspec.json.encode(data), type=cls)
    except msgspec.ValidationError as problem:
        raise CommandError(
            f"error: the server's {cls.__name__} cannot be read: {problem}"
        ) from problem


def owned(objects: Iterable[Json], uids: set[str]) -> list[Json]:
    """Return the objects whose controller has one of the UIDs, sorted by name.

    Labels are not enough: any client can set them.
    """
    out = [
        each
        for each in objects
        if any(
            ref.get("controller") and ref.get("uid") in uids
            for ref in each["metadata"].get("ownerReferences") or ()
        )
    ]
    return sorted(out, key=lambda each: _natural(each["metadata"]["name"]))


def annotations_of(each: Json) -> Mapping[str, str]:
    """Return the annotations of an object."""
    found: Mapping[str, str] = each["metadata"].get("annotations") or {}
    return found


def conditions_of(each: Json, *statuses: str) -> dict[str, Json]:
    """Return the conditions of an object with one of these statuses, or that are True, by type."""
    found = each.get("status", {}).get("conditions") or ()
    return {one["type"]: one for one in found if one["status"] in (statuses or ("True",))}


def describe(jobset: Json, jobs: Sequence[Json], pods: Sequence[Json]) -> dict[str, Any]:
    """Return a JobSet with its Jobs and pods, as ``status`` shows it."""
    model = typed(JobSet, jobset)
    status, policy = model.status, model.spec.failure_policy
    done = status.in_place_restart or InPlaceRestart()
    if (done.job_sizes or done.taken_seats or done.taken_jobs) and _is_starting(jobset):
        # Its pods are new, or not there yet: they begin with all seats, each with its own.
        done = msgspec.structs.replace(done, job_sizes=(), taken_seats=(), taken_jobs=())
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
    if status.execution_attempts is not None:
        out["run"] = {
            "attempt": status.execution_attempts,
            "since": status.start_time,
            "deadlineSeconds": model.spec.active_deadline_seconds,
        }
    if policy is not None:
        most, spent = policy.max_restarts, restart_budget.spent(status)
        out["budget"] = {"max": most, "spent": spent, "left": max(0, most - spent)}
    if policy is not None and policy.restart_strategy == keys.IN_PLACE_RESTART:
        out["epoch"] = {"synced": status.synced_epoch, "deprecated": status.deprecated_epoch}
        out["barrier"] = {"closed": False}
        if out["state"] not in IDLE:
            out["barrier"] = _barrier(model, _working(mine, of_jobs, done), jobset)
            out |= _all_spares(mine, done)
    out["conditions"] = [
        {key: each.get(key) for key in ("type", "reason", "message", "lastTransitionTime")}
        for each in conditions_of(jobset).values()
    ]
    listed: dict[str, list[dict[str, Any]]] = {}
    for job in mine:
        name = (job["metadata"].get("labels") or {}).get(keys.REPLICATED_JOB_NAME, "")
        shown = _job(job, of_jobs.get(job["metadata"]["uid"], []), done)
        listed.setdefault(name, []).append(shown)
    out["replicatedJobs"] = [
        {"name": item.name, "replicas": item.replicas, "jobs": listed.get(item.name, [])}
        for item in model.spec.replicated_jobs
    ]
    return out


def _working(
    jobs: Sequence[Json], pods: Mapping[str, Sequence[Json]], done: InPlaceRestart
) -> list[Json]:
    """Return the pods with a seat, given the pods by the UIDs of their Jobs."""
    each_job = [(job, pods.get(job["metadata"]["uid"], ())) for job in jobs]
    return [pod for job, its in each_job for pod in its if _seat(job, pod, done) != PARKED]


def _all_spares(jobs: Sequence[Json], done: InPlaceRestart) -> dict[str, Any]:
    parked = [job for job in jobs if not _works_for(job, done)]
    spares = sum(_parallelism(job) if job in parked else _spares(job) for job in jobs)
    with_jobs = any(_spare_jobs(job) for job in jobs)
    if not spares and not with_jobs:
        return {}
    whole = {"jobs": len(parked)} if with_jobs else {}
    return {"spares": {"ready": done.ready_spares or 0, "of": spares, **whole}}


def _state(jobset: Json) -> str:
    """Return the state of a JobSet whose status was written by another controller, or by none."""
    from jobsetpy.api.jobset import JobSet
    from jobsetpy.reconcilers.rules.summary import state

    return state(typed(JobSet, jobset))


def _is_starting(jobset: Json) -> bool:
    from jobsetpy.api.jobset import JobSet
    from jobsetpy.reconcilers.rules.in_place_record import is_starting

    return is_starting(typed(JobSet, jobset))


def _barrier(model: JobSet, pods: list[Json], jobset: Json) -> dict[str, Any]:
    live = [
        pod for pod in pods if pod.get("status", {}).get("phase") not in {"Failed", "Succeeded"}
    ]
    epochs = Counter(epoch for pod in live if (epoch := _epoch(pod)) > 0)
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
    restarting = conditions_of(jobset).get(keys.RESTARTING_IN_PLACE_CONDITION)
    if status.get("syncedEpoch") and restarting:
        return restarting.get("lastTransitionTime")
    resumed = conditions_of(jobset, "False").get(keys.SUSPENDED_CONDITION) or jobset["metadata"]
    return resumed.get("lastTransitionTime") or jobset["metadata"].get("creationTimestamp")


def _spares(job: Json) -> int:
    """Number of spares of a Job."""
    return _number(job, keys.IN_PLACE_SPARES_ANNOTATION) or 0


def _spare_jobs(job: Json) -> int:
    """Number of spare Jobs of a Job's ReplicatedJob."""
    return _number(job, keys.IN_PLACE_SPARE_JOBS_ANNOTATION) or 0


def _parallelism(job: Json) -> int:
    return int(job.get("spec", {}).get("parallelism", 1))


def _works_for(job: Json, done: InPlaceRestart) -> str:
    """Return the Job whose seats a Job's pods hold, in most cases itself; "" for a spare Job."""
    meta, spares = job["metadata"], _spare_jobs(job)
    taken = {one.job: one.holder for one in done.taken_jobs}
    replicas = _number(job, keys.REPLICATED_JOB_REPLICAS) or 0
    working = replicas - spares if spares else 0
    if not holds_job(meta["name"], _number(job, keys.JOB_INDEX) or 0, working, taken):
        return ""
    return next((name for name, holder in taken.items() if holder == meta["name"]), meta["name"])


def _in_spare_jobs(job: Json) -> bool:
    """Return True for a Job that is a spare as long as no other Job is lost."""
    spares, replicas = _spare_jobs(job), _number(job, keys.REPLICATED_JOB_REPLICAS) or 0
    return spares > 0 and (_number(job, keys.JOB_INDEX) or 0) >= replicas - spares


def _number(each: Json, annotation: str) -> int | None:
    text = annotations_of(each).get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else None


def _seat(job: Json, pod: Json, done: InPlaceRestart) -> int | None:
    """Return the seat of a pod; ``PARKED`` without one; ``None`` in a JobSet without spares."""
    if not _works_for(job, done):
        return PARKED
    spares = _number(job, keys.IN_PLACE_SPARES_ANNOTATION)
    index = _number(pod, keys.COMPLETION_INDEX_ANNOTATION)
    if spares is None or index is None:
        return None
    name, uid = job["metadata"]["name"], pod["metadata"]["uid"]
    taken = {one.seat: one.pod_uid for one in done.taken_seats if one.job == name}
    seats = _parallelism(job) - spares - done.missing(name)
    if not holds_seat(uid, index, seats, taken):
        return PARKED
    return next((seat for seat, holder in taken.items() if holder == uid), index)


def _job(job: Json, pods: list[Json], done: InPlaceRestart) -> dict[str, Any]:
    status, conditions = job.get("status", {}), conditions_of(job)
    words = {"Complete": "Completed", "Failed": "Failed", "Suspended": "Suspended"}
    word = next((words[kind] for kind in words if kind in conditions), "Running")
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
        "seats": 0 if _in_spare_jobs(job) else _parallelism(job) - _spares(job),
        **({"missing": missing} if (missing := done.missing(name)) else {}),
        "pods": [_pod(pod, _seat(job, pod, done)) for pod in pods],
    }


def _pod(pod: Json, seat: int | None) -> dict[str, Any]:
    status = pod.get("status", {})
    containers = items(status, "containerStatuses")
    index = _number(pod, keys.COMPLETION_INDEX_ANNOTATION)
    names = [each["name"] for each in items(child(pod, "spec"), "containers")]
    wanted = annotations_of(pod).get(keys.IN_PLACE_CONTAINER_ANNOTATION)
    out: dict[str, Any] = {
        "name": pod["metadata"]["name"],
        "container": wanted or next(iter(names), ""),
        "index": index,
        "phase": "Terminating" if pod["metadata"].get("deletionTimestamp") else status.get("phase"),
        "node": _node(pod),
        "ready": "Ready" in conditions_of(pod),
        "restarts": max((each.get("restartCount", 0) for each in containers), default=0),
    }
    if (epoch := _epoch(pod)) > 0:
        out["epoch"] = epoch
    if status.get("phase") == "Failed":
        out["failed"] = _failure(pod)
    if seat == PARKED:
        state = annotations_of(pod).get(keys.AGENT_STATE_ANNOTATION) or "starting"
        out["spare"] = "ended" if status.get("phase") in {"Failed", "Succeeded"} else state
    elif seat is not None:
        out["index"] = out["seat"] = seat
    if waiting := _waiting(pod):
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


def _failure(pod: Json) -> str:
    """Return why a pod has failed: its own reason, such as Evicted, or that of a container."""
    ends = [end for _, end in container_states(pod, "terminated") if end.get("exitCode")]
    # "Error" is the kubelet's reason for any exit code but 0.
    reasons = [end["reason"] for end in ends if end.get("reason", "Error") != "Error"]
    texts = [*reasons, *(exit_text(end["exitCode"]) for end in ends)]
    return pod["status"].get("reason") or next(iter(texts), "no reason is reported")


def _waiting(pod: Json) -> str:
    """Return the reason why a pod does not run: it has no node, or a container waits."""
    if unscheduled := conditions_of(pod, "False").get("PodScheduled"):
        return str(unscheduled.get("reason") or "")
    reasons = (text(waiting, "reason") for _, waiting in container_states(pod, "waiting"))
    return next(filter(None, reasons), "")


def container_states(pod: Json, state: str) -> Iterator[tuple[str, Json]]:
    """Yield name and state of each container in a state such as waiting, init containers first."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        for each in pod.get("status", {}).get(kind) or ():
            yield each.get("name", ""), each.get("state", {}).get(state) or {}


def _epoch(pod: Json) -> int:
    return parse_epoch(annotations_of(pod).get(keys.EPOCH_ANNOTATION))


def _node(pod: Json) -> str:
    return text(child(pod, "spec"), "nodeName")


def _controller(each: Json) -> str:
    refs = each["metadata"].get("ownerReferences") or ()
    return next((ref["uid"] for ref in refs if ref.get("controller")), "")


def _natural(name: str) -> tuple[Any, ...]:
    # Text and digits by turns, so that numbers are never compared with text.
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", name))
