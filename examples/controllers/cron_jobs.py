"""CronJob: a Job at each time of a schedule, after kubebuilder's example.

cd examples/controllers
jobsetpy crds cron_jobs:CronJob | kubectl apply -f -
jobsetpy run cron_jobs:setup
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal

import attrs

from jobsetpy import runtime as rt

NAME = "cron-jobs"
RANGES = (range(60), range(24), range(1, 32), range(1, 13), range(7))
MINUTE = timedelta(minutes=1)


@rt.model
class Spec:
    schedule: str = rt.field(
        default="", required=True, description="Such as */5 9-17 * * 1-5, UTC."
    )
    job: Mapping[str, Any] = rt.field(factory=dict, required=True, description="spec of each Job.")
    # Behavior while an earlier Job runs.
    concurrency_policy: Literal["Allow", "Forbid", "Replace"] = "Allow"
    starting_deadline_minutes: int = rt.field(default=10, minimum=1, maximum=1440)
    history_limit: int = rt.field(default=3, minimum=0)
    suspend: bool = False


@rt.model
class Status:
    active: int = 0
    last_schedule_time: datetime | None = None


@rt.resource("example.com", "v1", "CronJob", "cronjobs")
@rt.model
class CronJob:
    """Jobs by a schedule."""

    RESOURCE: ClassVar[rt.ResourceInfo]
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    spec: Spec = Spec()
    status: Status = Status()


def values(text: str, allowed: range) -> set[int]:
    """Return the values that a field of a schedule matches, such as ``*/5`` or ``1-5,7``."""
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        ends = (allowed[0], allowed[-1]) if span == "*" else (int(first), int(last or first))
        found.update(range(ends[0], ends[1] + 1, int(step or 1)))
    return found


def due(schedule: str, after: datetime, until: datetime) -> datetime | None:
    """The last minute of a schedule after one time, until another."""
    fields = [values(*each) for each in zip(schedule.split(), RANGES, strict=True)]
    at = until.replace(second=0, microsecond=0)
    while at > after:
        now = (at.minute, at.hour, at.day, at.month, at.isoweekday() % 7)
        if all(value in field for value, field in zip(now, fields, strict=True)):
            return at
        at -= MINUTE
    return None


@attrs.frozen
class CronJobs:
    """Start Jobs that are due, and delete the oldest that are over."""

    client: rt.Client
    clock: rt.Clock
    jobs: rt.Store[rt.Job]

    async def reconcile(self, cron: CronJob) -> rt.Result:
        where, spec, now = cron.metadata.namespace, cron.spec, self.clock.now()
        jobs = self.jobs.by_index(rt.OWNER_UID, cron.metadata.uid)
        active = [job.metadata.name for job in jobs if not job.status.finished]
        over = sorted(job.metadata.name for job in jobs if job.status.finished)
        doomed = over[: max(0, len(over) - spec.history_limit)]

        last = cron.status.last_schedule_time or cron.metadata.creation_timestamp or now
        earliest = now - timedelta(minutes=spec.starting_deadline_minutes)
        at = None if spec.suspend else due(spec.schedule, max(last, earliest), now)
        if at and active and spec.concurrency_policy == "Forbid":
            at = None
        if at and spec.concurrency_policy == "Replace":
            doomed += active
        for name in doomed:
            await self.client.delete(rt.Job, where, name)
        if at:
            # The same name for the same time: whoever comes twice makes it once.
            name, body = f"{cron.metadata.name}-{at:%Y%m%d%H%M}", {"spec": spec.job}
            await rt.create_or_apply(
                self.client, rt.Job, where, name, body, owner=NAME, controller=cron
            )
        status = Status(active=len(active), last_schedule_time=at or cron.status.last_schedule_time)
        await rt.patch_status(self.client, cron, status)
        return rt.Result.requeue_after(MINUTE - timedelta(seconds=now.second))


def setup(manager: rt.Manager) -> None:
    cron_jobs = manager.informer(CronJob)
    jobs = manager.informer(rt.Job, indexes=[rt.OWNER_UID])
    reconcile = CronJobs(manager.client, manager.clock, jobs.store).reconcile
    manager.add(rt.controller_for(cron_jobs, reconcile, name=NAME, owns=[jobs]))
