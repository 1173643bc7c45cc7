"""Looks at each change of a pod or Job, and tells when a JobSet's epochs need a pass.

Called for every event of thousands of pods, so all of it is O(1) and synchronous.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import controller_of
from jobsetpy.domain.epochs.decision import decide_epochs, needs_decision, parse_epoch, takes_part
from jobsetpy.domain.epochs.failures import Cause, Sign, judge, sign_of
from jobsetpy.domain.epochs.ledger import EpochLedger
from jobsetpy.domain.membership import AttemptKey, attempt_of
from jobsetpy.reconcilers._epoch_memory import EpochMemories


class EpochWatch:
    """The checks.

    Args:
        jobsets: cache of JobSets.
        jobs: cache of their Jobs.
        ledger: counts of epochs.
        memories: receive failures that were seen.
        clock: time.
    """

    def __init__(
        self,
        *,
        jobsets: rt.Store[JobSet],
        jobs: rt.Store[Job],
        ledger: EpochLedger,
        memories: EpochMemories,
        clock: Clock,
    ) -> None:
        self._jobsets = jobsets
        self._jobs = jobs
        self._ledger = ledger
        self._memories = memories
        self._clock = clock

    def on_pod(self, event: rt.Event[ChildPod]) -> Iterable[rt.Request]:
        """Bring the ledger up to date with a pod; ask for a reconcile if that is needed."""
        old, new = event.old, event.new
        failed = old is not None and self.pod_changed(old, new)
        if new is not None:
            self._memories.saw_pod(new)
        group = self._ledger.pod_changed(old, new)
        if failed:
            group = self._ledger.group_of_pod(event.obj)
        if group is None:
            return ()
        needed = failed or self.needs_pass(group, event.obj.metadata.uid)
        return (rt.Request(group.jobset),) if needed else ()

    def on_job(self, event: rt.Event[Job]) -> Iterable[rt.Request]:
        """The same for a Job, which brings its pods into a group and out of it."""
        old, new = event.old, event.new
        remade = False
        if old is not None and _goes_to_be_remade(old, new):
            left = attempt_of(old)
            remade = left is not None and self.job_remade(left, old)
        group = self._ledger.job_changed(old, new)
        if remade:
            group = attempt_of(old) if old is not None else None
        if group is None:
            return ()
        return (rt.Request(group.jobset),) if remade or self.needs_pass(group) else ()

    def needs_pass(self, group: AttemptKey, pod_uid: str = "") -> bool:
        """Whether the counts ask for a pass; O(1), and false for a group that is not current.

        The JobSet's own events cause passes too, so what cannot be known here yet is seen then.

        Args:
            group: whose counts changed.
            pod_uid: the pod that changed them; "" if a whole Job did.
        """
        jobset = self._current(group)
        if jobset is None:
            return False
        memory = self._memories.get(jobset)
        pods = self._ledger.histogram(group)
        if memory is not None and memory.phases.deprecated is not None:
            memory.phases.look(pods, self._clock.monotonic())
        if needs_decision(jobset, pods, None if memory is None else memory.cause):
            self._memories.of(jobset).phases.sign(self._clock.monotonic())
            return True
        invalid = self._ledger.invalid(group)
        if invalid and (not pod_uid or pod_uid in invalid):
            return takes_part(jobset)
        return False

    def pod_changed(self, old: ChildPod, new: ChildPod | None) -> bool:
        """Whether a change of a pod is a failure that ends the synced epoch; O(1).

        Args:
            old: the pod before.
            new: the pod now, ``None`` if it is gone.
        """
        sign = sign_of(old, new)
        if sign is None:
            return False
        group = self._ledger.group_of_pod(old)
        if group is None:
            return False
        jobset = self._current(group)
        epoch = parse_epoch(old.metadata.annotations.epoch)
        if jobset is None or not self._may_end(jobset, epoch):
            return False
        memory = self._memories.of(jobset)
        now = self._clock.monotonic()
        if sign is Sign.CONTAINER_FAILED and not memory.runs(
            epoch, old.metadata.resource_version, now
        ):
            return False
        job = self._job_of(old)
        if job is None:
            return False
        cause = judge(jobset, job, old, new, sign=sign, epoch=epoch)
        if cause is None:
            return False
        if decide_epochs(jobset, self._ledger.histogram(group), cause).empty:
            return False  # no restarts are left: its agent will tell, and end the JobSet
        memory.cause = cause
        memory.phases.sign(now)
        return True

    def job_remade(self, group: AttemptKey, job: Job) -> bool:
        """Whether a Job that goes because it is made anew on request ends the synced epoch."""
        jobset = self._current(group)
        if jobset is None or not self._may_end(jobset, jobset.status.synced_epoch):
            return False
        self._memories.of(jobset).cause = Cause(
            jobset.status.synced_epoch, None, job.metadata.name, counted=False
        )
        return True

    def _may_end(self, jobset: JobSet, epoch: int) -> bool:
        """Whether workers run at ``epoch``, as far as is known, and nothing has ended it yet."""
        status = jobset.status
        if not epoch == status.synced_epoch > status.deprecated_epoch or not takes_part(jobset):
            return False
        memory = self._memories.get(jobset)
        return memory is None or memory.cause is None or memory.cause.epoch < epoch

    def _current(self, group: AttemptKey) -> JobSet | None:
        """The JobSet of a group, if the group is of its present attempt."""
        if not self._jobsets.has_synced:
            return None
        jobset = self._jobsets.get(rt.ObjectKey(group.namespace, group.name))
        return jobset if jobset is not None and AttemptKey.of(jobset) == group else None

    def _job_of(self, pod: ChildPod) -> Job | None:
        owner = controller_of(pod.metadata.owner_references)
        if owner is None or not self._jobs.has_synced:
            return None
        job = self._jobs.get(rt.ObjectKey(pod.metadata.namespace, owner.name))
        return job if job is not None and job.metadata.uid == owner.uid else None


def _goes_to_be_remade(old: Job, new: Job | None) -> bool:
    """Whether a Job begins to go that carries the annotation for being made anew."""
    if old.metadata.deletion_timestamp is not None:
        return False
    gone = new is None or new.metadata.deletion_timestamp is not None
    return gone and keys.RESTART_ANNOTATION in old.metadata.annotations
