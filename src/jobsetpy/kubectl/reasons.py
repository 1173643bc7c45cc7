"""Reasons why a JobSet is where it is, and commands that show more."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from jobsetpy.api import keys
from jobsetpy.api.agent_reports import PARKED, PREPARED, READY
from jobsetpy.kubectl import output, timeline
from jobsetpy.kubectl.objects import (
    annotations_of,
    conditions_of,
    container_states,
    owned,
)
from jobsetpy.reconcilers.restart_in_place.job_controller import replacement_delay
from jobsetpy.reconcilers.rules.json_tree import Json, child, items

MAX_NAMED: Final = 3
NO_REASON: Final = "Its Jobs are not ready yet; no reason is reported."

_RUNS: Final = "runs"

_WAITS: Final = (
    "OutdatedDefinition",
    "DeletionStalled",
    "PodsRefused",
    "BarrierStalled",
    "RestartingInPlace",
    "RestartingJobSet",
    "CoschedulingNotServed",
    "CoschedulingInProgress",
    "GroupSchedulingInProgress",
    "StartupPolicyInProgress",
)


class Answer(NamedTuple):
    """Why a JobSet is where it is.

    Args:
        sentences: explanation, one sentence each; none for a JobSet that runs as it should.
        more: a command that shows more, or changes the state.
    """

    sentences: list[str]
    more: str


def explain(
    found: dict[str, Any], jobset: Json, jobs: Sequence[Json], pods: Sequence[Json], now: datetime
) -> Answer:
    """Return the explanation of a described JobSet, with the most important reason first."""
    meta, spec = jobset["metadata"], jobset.get("spec", {})
    name, flag = meta["name"], f"-n {meta['namespace']}"
    word = found["state"]
    conditions = {each["type"]: each for each in found["conditions"]}
    idle = _idle(jobset, conditions, now)
    if idle is not None:
        return idle
    mine = owned(jobs, {meta["uid"]})
    of_jobs = owned(pods, {job["metadata"]["uid"] for job in mine})
    reasons = _reasons(of_jobs)
    explained = {pod for names in reasons.values() for pod in names}
    sentences = _waits(found, conditions, explained) + _dependencies(spec, mine)
    lacking, command = _jobs(mine, flag)
    late, where = _pods(reasons, flag)
    sentences += lacking + late + _complete_without_pod(spec, mine, of_jobs, flag)
    more = where or command or f"kubectl jobset logs {name} {flag}"
    if word == "Running":
        sentences += _last_restart(jobset, now)
    elif not sentences:
        sentences = [NO_REASON]
    off = _no_step(jobset, mine, of_jobs)
    return Answer(
        [
            *sentences,
            *_smaller(found, jobset, of_jobs, now),
            *_log_reports(of_jobs),
            *_unheard(jobset, of_jobs),
            *_unfit_nodes(of_jobs),
            *off,
        ],
        more,
    )


def _idle(jobset: Json, conditions: Mapping[str, Any], now: datetime) -> Answer | None:
    """Return the answer for a JobSet with which the manager does nothing; ``None`` otherwise."""
    meta, spec = jobset["metadata"], jobset.get("spec", {})
    name, flag = meta["name"], f"-n {meta['namespace']}"
    if meta.get("deletionTimestamp"):
        held = ", ".join(meta.get("finalizers") or ()) or "the garbage collector"
        text = f"{name} is being deleted and waits for {held}."
        return Answer([text], f"kubectl get jobset {name} {flag} -o yaml")
    for end in ("Failed", "Completed"):
        if end in conditions:
            since = output.ago(conditions[end].get("lastTransitionTime"), now)
            text = f"{name} has {end.lower()} {since} ago: {_sentence(conditions[end]['message'])}"
            cause = _last_restart(jobset, now) if end == "Failed" else []
            return Answer([text, *cause], f"kubectl jobset logs {name} {flag}")
    manager = spec.get("managedBy")
    if manager not in {None, keys.JOBSET_CONTROLLER_NAME}:
        text = f"{name} is left to another controller: spec.managedBy is {manager}."
        return Answer([text], f"kubectl describe jobset {name} {flag}")
    created = output.parse_time(meta.get("creationTimestamp")) or now
    if not jobset.get("status") and (now - created).total_seconds() > 10:
        text = f"No controller has reconciled {name}: its status is empty."
        return Answer([text], "kubectl jobset doctor")
    if not spec.get("suspend"):
        return None
    if queue := (meta.get("labels") or {}).get(keys.KUEUE_QUEUE_LABEL):
        text = f"{name} is suspended: it waits in Kueue's queue {queue} to be admitted."
        return Answer([text], f"kubectl get workloads {flag}")
    text = f"{name} is suspended by spec.suspend, and has no pods until it is resumed."
    return Answer([text], f"kubectl jobset resume {name} {flag}")


def _waits(
    found: dict[str, Any], conditions: Mapping[str, Any], explained: Collection[str]
) -> list[str]:
    """Return why the group waits; a late pod has a reason only if not `explained` by itself."""
    out = [_sentence(conditions[kind]["message"]) for kind in _WAITS if kind in conditions]
    barrier = found.get("barrier")
    if barrier and barrier["closed"] and "BarrierStalled" not in conditions:
        late = barrier["waitsFor"]
        names = [
            each["pod"] if each["pod"] in explained else f"{each['pod']} ({each['why']})"
            for each in late
        ]
        if names:
            out.append(f"The barrier of epoch {barrier['epoch']} waits for {_listed(names)}.")
    return out


def _dependencies(spec: Json, jobs: Sequence[Json]) -> list[str]:
    made = {(job["metadata"].get("labels") or {}).get(keys.REPLICATED_JOB_NAME) for job in jobs}
    out = []
    for item in spec.get("replicatedJobs") or ():
        needs = item.get("dependsOn") or ()
        if needs and item["name"] not in made:
            on = " and ".join(f"{each['name']} is {each['status']}" for each in needs)
            out.append(f"{item['name']} has no Jobs until {on}.")
    return out


def _jobs(jobs: Sequence[Json], flag: str) -> tuple[list[str], str]:
    """Return sentences on Jobs with too few pods (a quota, a webhook, failures), and a command."""
    short, delays = [], []
    for job in jobs:
        status, spec = job.get("status", {}), job.get("spec", {})
        if spec.get("suspend") or conditions_of(job):
            continue
        wanted = spec.get("parallelism", 1) - (status.get("succeeded") or 0)
        if (status.get("active") or 0) + (status.get("terminating") or 0) < wanted:
            short.append(job["metadata"]["name"])
            delays += _delay(job)
    if not short:
        return [], ""
    have = "has" if len(short) == 1 else "have"
    text = f"{_listed(short)} {have} fewer pods than wanted."
    return [text, *delays[:MAX_NAMED]], f"kubectl describe job {short[0]} {flag}"


def _complete_without_pod(
    spec: Json, jobs: Sequence[Json], pods: Sequence[Json], flag: str
) -> list[str]:
    """Return sentences on indexes that count as complete although no pod shows it.

    A pod that was deleted while no manager ran, and whose program saved its work and exited with 0,
    leaves nothing but this.
    """
    if (spec.get("failurePolicy") or {}).get("restartStrategy") != keys.IN_PLACE_RESTART:
        return []
    out = []
    for job in jobs:
        name = job["metadata"]["name"]
        shown = owned(pods, {job["metadata"]["uid"]})
        known = {annotations_of(pod).get(keys.COMPLETION_INDEX_ANNOTATION) for pod in shown}
        indexes = _indexes(job.get("status", {}).get("completedIndexes") or "")
        if lost := [index for index in indexes if index not in known]:
            out.append(
                f"{name} counts index {_listed(lost)} as complete without a pod "
                "that shows it: if that pod was deleted while no manager ran, its work is not "
                f"done, and kubectl annotate job {name} {flag} {keys.RESTART_ANNOTATION}=now has "
                "it done again."
            )
    return out[:MAX_NAMED]


def _indexes(text: str) -> list[str]:
    """The indexes of a text such as ``0,3-5``, at most as many as a Job has pods in a list."""
    found: list[str] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            continue
        found += map(str, range(int(first), min(int(last or first), int(first) + 10_000) + 1))
    return found


def _delay(job: Json) -> list[str]:
    """Return a sentence on the Job controller's back-off."""
    status = child(job, "status")
    uncounted = items(child(status, "uncountedTerminatedPods"), "failed")
    failures = (status.get("failed") or 0) + len(uncounted)
    if not failures:
        return []
    by_index = job["spec"].get("backoffLimitPerIndex") is not None
    delay = replacement_delay.MAX_S if by_index else replacement_delay.delay_s(failures)
    beginning = f"{job['metadata']['name']}: {replacement_delay.counts(failures)}"
    return [f"{beginning} and waits for up to {delay:g} s after the latest failure."]


def _reasons(pods: Sequence[Json]) -> dict[str, list[str]]:
    """Return the names of pods that do not run, by the reason."""
    reasons: dict[str, list[str]] = {}
    for pod in pods:
        if why := _why(pod):
            reasons.setdefault(why, []).append(pod["metadata"]["name"])
    return reasons


def _pods(reasons: Mapping[str, list[str]], flag: str) -> tuple[list[str], str]:
    """Return a sentence for each reason, and a command that shows more."""
    out, first = [], ""
    for why, names in sorted(reasons.items(), key=lambda each: -len(each[1])):
        out.append(f"{_listed(names)} {'waits' if len(names) == 1 else 'wait'}: {why}.")
        first = first or names[0]
    return out, f"kubectl describe pod {first} {flag}" if first else ""


def _why(pod: Json) -> str:
    spec, status = pod.get("spec", {}), pod.get("status", {})
    if status.get("phase") in {"Succeeded", "Failed"}:
        return ""
    if pod["metadata"].get("deletionTimestamp"):
        node = spec.get("nodeName")
        return f"it is being deleted, for which its node {node} has to answer" if node else ""
    gates = [each["name"] for each in spec.get("schedulingGates") or ()]
    if gates:
        return f"it is held by the scheduling gate {', '.join(gates)}"
    if unscheduled := conditions_of(pod, "False").get("PodScheduled"):
        return f"no node for it ({unscheduled.get('message') or unscheduled.get('reason')})"
    if "Ready" in conditions_of(pod, "Unknown") or status.get("reason") == "NodeLost":
        return f"its node {spec.get('nodeName')} has not been heard of"
    for name, waiting in container_states(pod, "waiting"):
        reason = waiting.get("reason")
        if reason and reason not in {"PodInitializing", "ContainerCreating"}:
            text = waiting.get("message") or ""
            return f"container {name}: {reason}" + (f" ({text})" if text else "")
    return ""


def _last_restart(jobset: Json, now: datetime) -> list[str]:
    """Return a sentence on the cause of the last restart, if there was one."""
    history = items(child(jobset, "status"), "restartHistory")
    if not history:
        return []
    began = output.ago(history[-1].get("beganAt"), now)
    what = "Its end" if history[-1].get("outcome") == "Failed" else "Its last restart"
    return [_sentence(f"{what} began {began} ago: {timeline.cause_of(history[-1])}")]


def _no_step(jobset: Json, jobs: Sequence[Json], pods: Sequence[Json]) -> list[str]:
    """Return a sentence if hangs should be detected, and no run has ever reported progress.

    Agents report when a run has ended: nothing is known before the first restart.
    """
    status = child(jobset, "status")
    ran = (status.get("syncedEpoch") or 0) > 1
    templates = [child(job, "spec", "template") for job in jobs]
    asked = any(
        child(each, "metadata", "annotations").get(keys.IN_PLACE_HANG_ANNOTATION)
        for each in (jobset, *templates)
    )
    reported = "highestStep" in child(status, "inPlaceRestart") or any(
        annotations_of(pod).get(keys.PROGRESS_ANNOTATION) for pod in pods
    )
    if not asked or not ran or reported:
        return []
    text = (
        "No step was ever reported; hangs are not detected: set the annotation "
        f"{keys.PROGRESS_PATTERN_ANNOTATION}, or let the program write its steps into "
    )
    return [f"{text}$JOBSET_PROGRESS_FILE (docs/how-to/progress.md#report-progress)."]


def _smaller(found: dict[str, Any], jobset: Json, pods: Sequence[Json], now: datetime) -> list[str]:
    """Return a sentence on a group that works with fewer pods: the pods that it waits for."""
    status = child(jobset, "status")
    record = child(status, "inPlaceRestart")
    jobs = [job for item in found["replicatedJobs"] for job in item["jobs"]]
    missing = sum(job.get("missing", 0) for job in jobs)
    if not missing or found["barrier"]["closed"]:
        return []
    states: dict[str, list[str]] = {}
    for pod in pods:
        notes = annotations_of(pod)
        state = notes.get(keys.AGENT_STATE_ANNOTATION, "")
        runs = notes.get(keys.EPOCH_ANNOTATION) == str(status.get("syncedEpoch"))
        if keys.IN_PLACE_SPARES_ANNOTATION in notes:  # the agents of other Jobs report none
            state = _RUNS if runs and state != PREPARED else state
            states.setdefault(state, []).append(pod["metadata"]["name"])
    late = [*states.get(PARKED, ()), *states.get(_RUNS, ())]
    waits = f"the standby processes of {_listed(late)}" if late else "the time between two sizes"
    if len(states.get(READY, ())) + len(states.get(PARKED, ())) < missing:
        waits = "the missing pods"
    total, since = record.get("pods", 0) + missing, output.ago(record.get("resizeTime"), now)
    text = f"The group works with {total - missing} of {total} pods since {since}; it waits for"
    return [f"{text} {waits}."]


def _log_reports(pods: Sequence[Json]) -> list[str]:
    """Return a sentence for each of the first pods of which a rule reports a line of output."""
    texts = {pod["metadata"]["name"]: annotations_of(pod) for pod in pods}
    found = {name: notes.get(keys.LOG_REPORT_ANNOTATION) for name, notes in texts.items()}
    return [_sentence(f"Pod {name}: log rule {text}") for name, text in found.items() if text][
        :MAX_NAMED
    ]


def _unfit_nodes(pods: Sequence[Json]) -> list[str]:
    """Return a sentence for each of the first pods whose health command has failed."""
    out = []
    for pod in pods:
        state = annotations_of(pod).get(keys.AGENT_STATE_ANNOTATION, "")
        if state.startswith(keys.UNFIT_STATE):
            name, node = pod["metadata"]["name"], pod.get("spec", {}).get("nodeName")
            reason = state.removeprefix(keys.UNFIT_STATE)
            out.append(_sentence(f"Node {node} is unfit for pod {name}: {reason}"))
    return out[:MAX_NAMED]


def _unheard(jobset: Json, pods: Sequence[Json]) -> list[str]:
    """Return a sentence on pods whose heartbeats others do not receive, as their agents report."""
    texts = {
        pod["metadata"]["name"]: annotations_of(pod).get(keys.UNHEARD_ANNOTATION) for pod in pods
    }
    if not any(texts.values()):
        return []
    from jobsetpy.reconcilers.restart_in_place.detection.heartbeat_report import (
        BLOCKED,
        parse_report,
    )

    epoch = (jobset.get("status") or {}).get("syncedEpoch")
    known = {name: report for name, text in texts.items() if (report := parse_report(text))}
    observers: dict[str, list[str]] = {}
    blocked = []
    for name, report in known.items():
        if report.epoch == epoch and report.motion == BLOCKED:
            blocked.append(name)
        elif report.epoch == epoch:
            for pod in report.pods:
                observers.setdefault(pod, []).append(name)
    sentences = [
        f"Heartbeats of {jobset['metadata']['name']}-{pod} no longer arrive at {_listed(names)}."
        for pod, names in observers.items()
    ]
    if blocked:
        sentences.append(
            f"No heartbeats arrive at {_listed(blocked)}: UDP, port "
            f"{keys.HEARTBEAT_PORT}, is blocked, by a NetworkPolicy perhaps."
        )
    return sentences


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _sentence(text: str | None) -> str:
    text = (text or "no reason is reported").strip()
    return text if text.endswith(".") else f"{text}."
