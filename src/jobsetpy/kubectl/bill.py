"""Use of JobSets' time, from the record in their status (``reconcilers.rules.time_spent``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from jobsetpy.api.job_size import pods_at_once
from jobsetpy.kubectl import output, timeline
from jobsetpy.reconcilers.rules.json_tree import Json, child, items

IN_PLACE: Final = "InPlace"
RECREATE: Final = "Recreate"
NODE_LOST: Final = frozenset({"NodeLost", "PodSilent"})
"""Causes of restarts for a lost node; the second one is found by heartbeats."""
ASKED: Final = frozenset({"RestartRequested", "PodLeaving", "InPlaceGroupResized", "GroupGrows"})
"""Causes of restarts that are no failures."""


class Restarts(NamedTuple):
    """Restarts of one kind and cause, their number, and the seconds that they took."""

    kind: str
    cause: str
    number: int
    seconds: float


class Bill(NamedTuple):
    """Use of a JobSet's time; all durations are in seconds.

    Args:
        namespace: namespace of the JobSet.
        name: its name.
        state: its state.
        pods: number of pods that it requests now.
        since: beginning of the time that is reported.
        seconds: duration of that time.
        queued: suspended, by a queue or a user.
        waiting: waiting for pods, outside restarts.
        running: workers ran.
        missing: part of running in seats without a pod.
        restarts: restarts by kind and cause.
        starting: part of running until the first steps of runs.
        repeating: part of running in steps that an earlier run had done.
        reported: part of running of which workers have reported the use.
        repeated_steps: number of steps done again.
        first_start: time until workers ran for the first time, ``None`` if unknown.
        bound: True if queued and waiting are not known: running is then an upper bound.
    """

    namespace: str
    name: str
    state: str
    pods: int
    since: datetime
    seconds: float
    queued: float
    waiting: float
    running: float
    restarts: tuple[Restarts, ...]
    missing: float = 0.0
    starting: float = 0.0
    repeating: float = 0.0
    reported: float = 0.0
    repeated_steps: int = 0
    first_start: float | None = None
    bound: bool = False

    @property
    def training(self) -> float:
        """Seconds of new steps; of runs on which nothing was reported, all."""
        return max(0.0, self.running - self.missing - self.starting - self.repeating)

    @property
    def restarting(self) -> float:
        """Seconds of all restarts."""
        return sum(each.seconds for each in self.restarts)

    @property
    def paid(self) -> float:
        """Seconds in which the JobSet may have had nodes."""
        return self.seconds - self.queued

    @property
    def nodes_lost(self) -> int:
        """Number of restarts because of a lost node."""
        return sum(each.number for each in self.restarts if each.cause in NODE_LOST)


class Estimate(NamedTuple):
    """Estimated cost of the same failures, had all Jobs been recreated each time.

    Args:
        failures: number of failures that a restart in place has answered.
        actual: seconds that these restarts took.
        each: seconds of one recreation.
        basis: measurement that ``each`` comes from.
    """

    failures: int
    actual: float
    each: float
    basis: str


def bill(jobset: Json, now: datetime, start: datetime | None = None) -> Bill | None:
    """Return the use of a JobSet's time; ``None`` if it is not known.

    Args:
        jobset: the JobSet.
        now: aware.
        start: beginning of the time to report; all of it if ``None``.
    """
    status, meta = child(jobset, "status"), jobset["metadata"]
    spent = child(status, "timeSpent")
    began, since = (output.parse_time(spent.get(name)) for name in ("beganAt", "since"))
    if began is None or since is None:
        return None
    until = since if spent["activity"] == "Ended" else max(now, since)
    if start is not None and until <= start:
        return None
    more = (until - since).total_seconds()
    uses, restarts = _uses(spent, status, more)
    ran = more if spent["activity"] == "Running" else 0.0
    whole = Bill(
        namespace=meta["namespace"],
        name=meta["name"],
        state=status.get("state", ""),
        pods=pods_of(jobset),
        since=began,
        seconds=(until - began).total_seconds(),
        queued=uses["Queued"],
        waiting=uses["Waiting"],
        running=uses["Running"],
        restarts=restarts,
        missing=_seconds(spent, "missing") + ran * _missing_share(status),
        starting=_seconds(spent, "starting"),
        repeating=_seconds(spent, "repeating"),
        reported=_seconds(spent, "reported"),
        repeated_steps=spent.get("repeatedSteps", 0),
        first_start=_seconds(spent, "firstStart") if "firstStartMillis" in spent else None,
    )
    if start is None or began >= start:
        return whole
    return _latest(whole, items(status, "restartHistory"), start, until)


_SUMMED: Final = (
    *("pods", "seconds", "queued", "waiting", "running"),
    *("missing", "starting", "repeating", "reported", "repeated_steps"),
)


def total(bills: Sequence[Bill]) -> Bill:
    """Return the sum of bills, of which there is at least one."""
    sums: dict[str, Any] = {name: sum(getattr(each, name) for each in bills) for name in _SUMMED}
    return Bill(
        namespace="",
        name="TOTAL",
        state="",
        since=min(each.since for each in bills),
        restarts=_merged(one for each in bills for one in each.restarts),
        bound=any(each.bound for each in bills),
        **sums,
    )


def goodput(bills: Sequence[Bill]) -> float | None:
    """Return the share of training in the time outside queues; ``None`` if there was none.

    JobSets weigh by their pods, so that it is a share of what is paid for.
    """
    paid = sum(each.paid * each.pods for each in bills)
    return sum(each.training * each.pods for each in bills) / paid if paid > 0 else None


def _merged(restarts: Iterable[Restarts]) -> tuple[Restarts, ...]:
    """Return one entry for each kind and cause."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for kind, cause, count, took in restarts:
        before = found.get((kind, cause), (0, 0.0))
        found[kind, cause] = before[0] + count, before[1] + took
    return tuple(Restarts(*use, *amount) for use, amount in found.items())


def estimate(one: Bill, others: Iterable[Bill]) -> Estimate | None:
    """Return what recreations would have cost; ``None`` if this cluster has measured none.

    Args:
        one: JobSet whose failures are meant.
        others: other JobSets of the cluster.
    """
    failures = [each for each in one.restarts if each.kind == IN_PLACE and each.cause not in ASKED]
    count, actual = sum(each.number for each in failures), sum(each.seconds for each in failures)
    for bills, whose in (((one,), "of this JobSet"), (others, "of JobSets in this cluster")):
        made = [each for its in bills for each in its.restarts if each.kind == RECREATE]
        number = sum(each.number for each in made)
        if number:
            mean = sum(each.seconds for each in made) / number
            return Estimate(count, actual, mean, f"mean of {number} measured {whose}")
    if one.first_start is None:
        return None
    return Estimate(count, actual, one.first_start, "the first start of this JobSet")


def pods_of(jobset: Json) -> int:
    """Return the number of pods that a JobSet requests."""
    found = 0
    for item in jobset["spec"].get("replicatedJobs") or ():
        job = item["template"].get("spec") or {}
        pods = pods_at_once(job.get("parallelism"), job.get("completions"))
        found += item.get("replicas", 1) * pods
    return found


def _uses(spent: Json, status: Json, more: float) -> tuple[dict[str, float], tuple[Restarts, ...]]:
    """Return the stored seconds by activity and restarts, with those of the present activity."""
    uses = {name: _seconds(spent, name.lower()) for name in ("Queued", "Waiting", "Running")}
    restarts = [
        Restarts(each["kind"], each["cause"], each.get("count", 0), each.get("millis", 0) / 1000)
        for each in spent.get("restarts") or ()
    ]
    if spent["activity"] in uses:
        uses[spent["activity"]] += more
    elif spent["activity"] == "Restarting":
        record = (status.get("restartHistory") or [{}])[-1]
        restarts.append(Restarts(record.get("kind", RECREATE), _cause(record), 1, more))
    return uses, _merged(restarts)


def _missing_share(status: Json) -> float:
    """Return the share of the group's seats that have no pod now."""
    record = child(status, "inPlaceRestart")
    missing: int = sum(one.get("missing", 0) for one in items(record, "jobSizes"))
    return missing / (record.get("pods", 0) + missing) if missing else 0.0


def _latest(whole: Bill, history: Sequence[Json], start: datetime, until: datetime) -> Bill:
    """Return what is known since a time after the beginning of the record: restarts alone."""
    found = []
    for record in history:
        began = output.parse_time(record.get("beganAt"))
        if began is None or began < start:
            continue
        took = timeline.total(record)
        if took is None:
            took = 0 if record.get("outcome") else int((until - began) / timedelta(milliseconds=1))
        found.append(Restarts(record.get("kind", ""), _cause(record), 1, took / 1000))
    seconds = (until - start).total_seconds()
    known: dict[str, Any] = {
        **dict.fromkeys(_SUMMED[2:], 0),
        "seconds": seconds,
        "running": max(0.0, seconds - sum(each.seconds for each in found)),
    }
    return whole._replace(since=start, restarts=_merged(found), bound=True, **known)


def _seconds(spent: Json, name: str) -> float:
    return (spent.get(f"{name}Millis") or 0) / 1000


def _cause(record: Json) -> str:
    return (record.get("cause") or {}).get("reason") or "Other"
