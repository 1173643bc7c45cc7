"""History of a JobSet's last restarts in its status.

Both reconcilers that restart something record it with the status write that decides or ends the
restart. The list is bounded in number and each record in bytes, regardless of the names and
messages of its cause: it is part of every write and every cached JobSet.

A restart in place that has begun becomes that of the Jobs when those are recreated before it is
over, as in the budget (``reconcilers.rules.restart_budget``): one failure, one restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import msgspec

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve, to_json
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet, RestartCause, RestartRecord
from jobsetpy.api.timestamps import millis_text
from jobsetpy.reconcilers.rules.membership import pods_of, pods_of_template

MAX_RECORDS: Final = 10
MAX_RECORD_BYTES: Final = 600
"""Maximum size of one record as JSON. A JobSet's status has at most ten of them."""

IN_PLACE: Final = "InPlace"
RECREATE: Final = "Recreate"
REPLICATED_JOB: Final = "RestartReplicatedJob"
JOB: Final = "RestartJob"

COMPLETED: Final = "Completed"
INTERRUPTED: Final = "Interrupted"

_MILLI: Final = timedelta(milliseconds=1)
_TEXT_LIMITS: Final = (160, 63, 40, 24, 16, 8)
_RECORD_TEXTS: Final = ("target", "rule", "last_pod", "last_node")
_CAUSE_TEXTS: Final = ("reason", "job", "pod", "node", "container", "message")

History = tuple[RestartRecord, ...]


def is_open(history: History) -> bool:
    """Return True if the latest restart is in progress."""
    return bool(history) and not history[-1].outcome


def with_begun(history: History, record: RestartRecord) -> History:
    """Return the history with one more restart, in progress or completed."""
    if is_open(history):
        last = history[-1]
        if last.kind == IN_PLACE and record.kind != IN_PLACE:
            history, record = history[:-1], _taken_over(last, record)
        else:
            history = (*history[:-1], evolve(last, outcome=INTERRUPTED))
    return (*history, bounded(record))[-MAX_RECORDS:]


def with_ended(history: History, now: datetime, outcome: str, **details: Any) -> History:
    """Return the history with the latest restart ended; unchanged if it has ended before.

    Args:
        history: the history so far.
        now: aware.
        outcome: ``COMPLETED`` or ``INTERRUPTED``.
        details: fields to set. The default of ``gathering_millis`` for a completed one is the time
            since the decision on the restart.
    """
    if not is_open(history):
        return history
    last = history[-1]
    if outcome == COMPLETED and "gathering_millis" not in details and last.began_at is not None:
        decided = last.began_at + (last.detection_millis or 0) * _MILLI
        details["gathering_millis"] = millis((now - decided).total_seconds())
    return (*history[:-1], bounded(evolve(last, outcome=outcome, **details)))


def with_lift(history: History, epoch: int, seconds: float) -> History:
    """Return the history with the time that it took to lift the barrier of an epoch."""
    return _with_details(history, epoch, lift_millis=millis(seconds))


def with_pods(history: History, epoch: int, pods: int) -> History:
    """Return the history with the number of pods that work in an epoch."""
    return _with_details(history, epoch, pods=pods)


def _with_details(history: History, epoch: int, **details: Any) -> History:
    for at, record in enumerate(history):
        if record.kind == IN_PLACE and record.number == epoch and record.outcome == COMPLETED:
            return (*history[:at], evolve(record, **details), *history[at + 1 :])
    return history


@attrs.frozen
class Over:
    """Completed restart, with the time for which workers did not run.

    Args:
        record: the stored record.
        seconds: seconds from the first sign of the failure to the end.
    """

    record: RestartRecord
    seconds: float


def over(old: History, new: History, now: datetime) -> tuple[Over, ...]:
    """Return the restarts that have ended in a new history but not in the old one.

    A restart that was interrupted by another one lasted until the first sign of that one.

    Args:
        old: the history before.
        new: the history after.
        now: aware time of the new one.
    """
    known = {identity(each) for each in old if each.outcome}
    out = []
    for at, each in enumerate(new):
        if not each.outcome or each.began_at is None or identity(each) in known:
            continue
        following = new[at + 1].began_at if at + 1 < len(new) else None
        end = now if following is None else min(now, following)
        out.append(Over(each, max(0.0, (end - each.began_at).total_seconds())))
    return tuple(out)


def pods_of_restart(jobset: JobSet, record: RestartRecord) -> int:
    """Return the number of pods that a restart has restarted."""
    if record.kind in {IN_PLACE, RECREATE}:
        return pods_of(jobset)
    stem = f"{jobset.metadata.name}-"
    for item in jobset.spec.replicated_jobs:
        pods = pods_of_template(item)
        if record.kind == REPLICATED_JOB and record.target == item.name:
            return item.replicas * pods
        prefix, _, index = record.target.rpartition("-")
        if record.kind == JOB and prefix == f"{stem}{item.name}" and index.isdigit():
            return pods * (1 + record.more_jobs)
    return 0


def identity(record: RestartRecord) -> tuple[object, ...]:
    """Return what tells restarts of a JobSet apart."""
    return record.kind, record.number, record.target, record.began_at


def job_cause(job: Job) -> RestartCause:
    """Return the failure of a Job as a cause."""
    condition = job.status.failed_condition
    if condition is None:
        return RestartCause(job=job.metadata.name)
    return RestartCause(reason=condition.reason, job=job.metadata.name, message=condition.message)


def jobs_restarted(
    kind: str, job: Job, now: datetime, failed_at: datetime | None, **details: Any
) -> RestartRecord:
    """Return the record of a restart of Jobs for the failure of one of them.

    Args:
        kind: kind of the restart.
        job: the failed Job.
        now: aware.
        failed_at: time of its failure, if known.
        details: other fields.
    """
    began = now if failed_at is None else min(failed_at, now)
    return RestartRecord(
        kind=kind,
        began_at=whole_millis(began),
        detection_millis=millis((now - began).total_seconds()),
        cause=job_cause(job),
        **details,
    )


def millis(seconds: float) -> int:
    """Return seconds as milliseconds, within the bounds of the CRD."""
    return min(max(0, round(seconds * 1000)), keys.INT32_MAX)


def whole_millis(when: datetime) -> datetime:
    """Return a time in whole milliseconds, as it is stored."""
    return when.replace(microsecond=when.microsecond // 1000 * 1000)


def bounded(record: RestartRecord) -> RestartRecord:
    """Return the record with texts truncated to fit ``MAX_RECORD_BYTES``."""
    cut, texts = record, dict[str, Any]()
    for limit in _TEXT_LIMITS:
        cause = record.cause
        if cause is not None:
            texts = {name: _cut(getattr(cause, name), limit) for name in _CAUSE_TEXTS}
            cause = evolve(cause, **texts)
        texts = {name: _cut(getattr(record, name), limit) for name in _RECORD_TEXTS}
        cut = evolve(record, cause=cause, **texts)
        if len(msgspec.json.encode(record_json(cut))) <= MAX_RECORD_BYTES:
            break
    return cut


def record_json(record: RestartRecord) -> Mapping[str, Any]:
    """Return a record as the API server stores it."""
    out: dict[str, Any] = to_json(evolve(record, began_at=None))
    out.update(kind=record.kind, counted=record.counted)
    if record.began_at is not None:
        out["beganAt"] = millis_text(record.began_at)
    return out


def _taken_over(begun: RestartRecord, record: RestartRecord) -> RestartRecord:
    """Return a restart of Jobs that continues a restart in place."""
    seen, cause = begun.cause or RestartCause(), record.cause or RestartCause()
    cause = evolve(
        cause,
        pod=cause.pod or seen.pod,
        node=cause.node or seen.node,
        container=cause.container or seen.container,
        exit_code=seen.exit_code if cause.exit_code is None else cause.exit_code,
    )
    began, detection = begun.began_at, record.detection_millis
    if began is None or record.began_at is None:
        return evolve(record, cause=cause)
    first = min(began, record.began_at)
    detection = (detection or 0) + millis((record.began_at - first).total_seconds())
    return evolve(record, cause=cause, began_at=first, detection_millis=detection)


def _cut(text: str, limit: int) -> str:
    """Truncate a text to about ``limit`` bytes as JSON; names have no control characters."""
    if text.isascii() and text.isprintable() and len(text) <= limit:
        return text
    text = "".join(letter if letter.isprintable() else " " for letter in text[: limit + 1])
    data = text.encode("utf-8", "replace")
    return text if len(data) <= limit else data[: limit - 3].decode("utf-8", "ignore") + "..."
