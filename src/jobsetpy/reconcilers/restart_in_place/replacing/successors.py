"""Pods that the manager creates in place of pods that have failed (restart in place).

The Job controller waits before it replaces a failed pod: 10 s after the first failure of the Job,
up to 10 minutes after the seventh (``job_controller.replacement_delay``). The other workers wait
with it, although the restarts of the group have a budget and a back-off of their own. So the
manager creates the *successor* of such a pod, as the Job controller would, as soon as the pod has
ended. The Job counts the failure as ever; it finds the successor and creates none.

The Job controller stays in charge of everything else. It replaces the pods of a Job that counts no
failure immediately, and the manager leaves them to it. A pod whose end the Job does not count, such
as a deleted one (``uncounted``), has a successor here only while the Job waits because of an
earlier failure: immediately if that was observed to be recent, else if the Job controller creates
no pod for ``PATIENCE_S``. Pods that keep ending before they have run are left to the Job
controller's back-off after ``MAX_EARLY`` successors; of those that never reported, only pods on an
unfit node (``unfit_nodes``) have one.

Safety: a name is derived from the predecessor's UID and the synced epoch, so another manager, or
another try, creates the same pod, while the successor of a pod that has run never has its name: an
agent that was cut off must not take it for its own pod. If the Job controller creates one at the
same time, it deletes one of the two, and no barrier lifts while an index has two (``decision``).

No pod is created for Jobs that end, are suspended, deleted or to be recreated, whose
``podFailurePolicy`` could fail them or the index for the pod's end, or whose ``backoffLimit`` is
reached. A Job can end between the last look at it and the creation of a pod, though. The Job
controller ignores a Job that has finished, so such a pod would run for ever: it is deleted here.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ENDED
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import version_number
from jobsetpy.api.reconcile import Result
from jobsetpy.api.worker_reports import epoch_of
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import takes_part
from jobsetpy.reconcilers.restart_in_place.failures import unfit_nodes
from jobsetpy.reconcilers.restart_in_place.job_controller import replacement_delay, template_rules
from jobsetpy.reconcilers.restart_in_place.replacing.uncounted import is_leaving
from jobsetpy.reconcilers.rules.json_tree import Json, child, objects, text
from jobsetpy.reconcilers.rules.membership import AttemptKey, attempt_of, is_ours, parse_count
from jobsetpy.reconcilers.rules.plan import Plan
from jobsetpy.reconcilers.rules.times import Now

PATIENCE_S: Final = 5.0
"""Seconds that the Job controller has to replace a pod while its back-off is not known to last."""
MARGIN_S: Final = 3.0
"""Minimum rest of a back-off, in seconds, to create a pod within it. The Job controller counts it
from the pod's end, which is observed up to two seconds later."""
MAX_EARLY: Final = 2
"""Maximum number of successors in a row of pods of an index that ended before they had run."""

REFUSED_FIRST_S: Final = 10.0
REFUSED_MAX_S: Final = 300.0
"""Pause after the API server has refused a pod, doubled each time up to the second."""

_JOB_CONTROLLER: Final = frozenset({"", "kubernetes.io/job-controller"})
_NAME_MAX: Final = 63
_SUFFIX: Final = 5
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of generated names in Kubernetes: no vowels, hence no words."""


@attrs.frozen(kw_only=True)
class ObservedMembers:
    """Observed state of one Job and its pods.

    Args:
        job: the Job; ``None`` if it is deleted.
        jobset: JobSet that owns it, by UIDs; ``None`` if there is none.
        pods: its pods, by UID of their controller, including those that have ended.
        failed_at: monotonic time at which its latest failure was observed; ``None`` if it was not.
        confirmed: the Job was just read from the API server.
    """

    job: Job | None
    jobset: JobSet | None = None
    pods: Sequence[ChildPod] = ()
    failed_at: float | None = None
    confirmed: bool = False


@attrs.frozen(kw_only=True)
class MissingMembers:
    """State remembered of a Job that is missing pods; all of it may be lost.

    Args:
        uid: UID of the Job.
        waiting: number of missing pods that the Job controller was last observed to have left; 0
            if nothing waits for it.
        since: monotonic time at which it had this number first.
        refusals: number of refusals by the API server in a row.
        not_before: monotonic time of the next try after a refusal.
    """

    uid: str = ""
    waiting: int = 0
    since: float = 0.0
    refusals: int = 0
    not_before: float = 0.0

    def refused(self, now: float) -> MissingMembers:
        """Return the state after a refusal at a monotonic time."""
        pause = min(REFUSED_FIRST_S * 2.0**self.refusals, REFUSED_MAX_S)
        return attrs.evolve(self, refusals=min(self.refusals + 1, 10), not_before=now + pause)


@attrs.frozen(kw_only=True)
class Successor:
    """A pod to create.

    Args:
        index: its completion index.
        name: its name.
        predecessor: failed pod of the index that it follows; ``None`` if there is none left.
        early: number of its predecessors in a row that had not run.
        unfit: True if its predecessor has called its node unfit.
    """

    index: int
    name: str
    predecessor: ChildPod | None = None
    early: int = 0
    unfit: bool = False


@attrs.frozen(kw_only=True)
class SuccessorPlan(Plan[MissingMembers]):
    """Actions for a Job.

    Args:
        create: pods to create, by ascending index.
        avoid: names of nodes that they avoid.
        delete: pods to delete, since they run although the Job has finished.
        confirm: the Job has to be read from the API server and the plan made again, before any
            action.
    """

    create: tuple[Successor, ...] = ()
    avoid: Sequence[str] = ()
    delete: tuple[ChildPod, ...] = ()
    confirm: bool = False


def may_need_successor(old: ChildPod | None, new: ChildPod | None) -> bool:
    """Return True if a change of a pod may leave its index without a pod; O(1)."""
    if new is None or (old is not None and old.metadata.uid != new.metadata.uid):
        return old is not None
    failed = new.status.phase == "Failed"
    return failed and (old is None or old.status.phase != "Failed")


def may_be_missing_pods(job: Job) -> bool:
    """Return True if a Job that counts failures has fewer pods than it needs; O(1)."""
    spec, status = job.spec, job.status
    if spec.suspend:
        return False
    wanted = 1 if spec.parallelism is None else spec.parallelism
    return replacement_delay.failures_of(job) > 0 and status.active + status.succeeded < wanted


def is_left_over(job: Job, pod: ChildPod) -> bool:
    """Return True for a pod that runs although its Job has finished; O(1).

    A Job finishes when the Job controller has deleted all active pods that it knows of. So such a
    pod was created here, as the Job's last pods ended.
    """
    return (
        job.status.finished is not None
        and job.metadata.deletion_timestamp is None
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ENDED
    )


def plan_successors(observed: ObservedMembers, memory: MissingMembers, now: Now) -> SuccessorPlan:
    """Plan one reconcile of a Job; O(completions + its pods)."""
    job, jobset = observed.job, observed.jobset
    if job is None or jobset is None:
        return SuccessorPlan()
    if job.status.finished is not None:
        return _plan_left_over(observed, job, jobset)
    template = _template(jobset, job)
    if template is None:
        return SuccessorPlan()
    if memory.uid != job.metadata.uid:
        memory = MissingMembers(uid=job.metadata.uid)
    missing = _missing(job, template, observed.pods)
    if not missing or _exceeds_limit(job, observed.pods):
        return SuccessorPlan()
    since = memory.since if memory.waiting == len(missing) else now.monotonic
    create: list[Successor] = []
    waits: list[float] = []
    for one in _successors(observed, job, jobset, template, missing):
        wait_s = _wait_s(job, one.predecessor, since, observed.failed_at, now)
        if wait_s == 0:
            create.append(one)
        elif wait_s is not None:
            waits.append(wait_s)
    memory = attrs.evolve(memory, waiting=len(missing) if waits else 0, since=since)
    if create and now.monotonic < memory.not_before:
        waits.append(memory.not_before - now.monotonic)
        create = []
    result = Result.requeue_after(min(waits)) if waits else Result.done()
    if not create:
        return SuccessorPlan(memory=memory, result=result)
    return SuccessorPlan(
        create=tuple(create) if observed.confirmed else (),
        avoid=unfit_nodes.avoided(jobset, template, observed.pods),
        confirm=not observed.confirmed,
        memory=memory,
        result=attrs.evolve(result, summary=f"creates {len(create)} pods"),
    )


def _plan_left_over(observed: ObservedMembers, job: Job, jobset: JobSet) -> SuccessorPlan:
    """Plan the deletion of pods that a finished Job has left over; the JobSet may have finished."""
    template = template_rules.job_template(jobset, job) if jobset.spec.restarts_in_place else None
    if template is None or not is_ours(jobset) or not _is_of_job_controller(template):
        return SuccessorPlan()
    left = tuple(pod for pod in observed.pods if is_left_over(job, pod))
    if not left:
        return SuccessorPlan()
    if not observed.confirmed:
        return SuccessorPlan(confirm=True)
    return SuccessorPlan(delete=left, result=Result.done(summary=f"deletes {len(left)} pods"))


def _is_of_job_controller(template: Json) -> bool:
    return text(template, "managedBy") in _JOB_CONTROLLER


def _successors(
    observed: ObservedMembers,
    job: Job,
    jobset: JobSet,
    template: Json,
    missing: Mapping[int, Sequence[ChildPod]],
) -> Iterator[Successor]:
    """Yield the next pods of indexes without one, unless they are left to the Job controller."""
    names, synced = {pod.metadata.name for pod in observed.pods}, jobset.status.synced_epoch
    codes = unfit_nodes.unfit_codes(jobset, template)
    for index, pods in missing.items():
        last, name = _predecessor(job, index, pods, names, synced)
        unfit = last is not None and unfit_nodes.is_unfit(last, codes)
        one = _successor(index, name, last, synced, unfit=unfit)
        if one is not None and (last is None or not _may_fail_the_job(template, last)):
            yield one


def successor_name(job: str, index: int, seed: str) -> str:
    """Return a pod name of the Job controller's pattern; the same one for the same seed."""
    middle = f"-{index}-"
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8])
    suffix = ""
    for _ in range(_SUFFIX):
        number, at = divmod(number, len(_LETTERS))
        suffix += _LETTERS[at]
    return job[: _NAME_MAX - _SUFFIX - len(middle)] + middle + suffix


def _template(jobset: JobSet, job: Job) -> Json | None:
    """Return the spec of a Job's template if the manager may create pods for the Job."""
    if (
        not takes_part(jobset)
        or template_rules.is_ending(job)
        or attempt_of(job) != AttemptKey.of(jobset)
    ):
        return None
    if job.spec.completion_mode != "Indexed" or keys.RESTART_ANNOTATION in job.metadata.annotations:
        return None
    template = template_rules.job_template(jobset, job)
    if template is None or not _is_of_job_controller(template):
        return None
    return None if template_rules.may_fail_by_condition(template) else template


def _missing(job: Job, template: Json, pods: Sequence[ChildPod]) -> dict[int, list[ChildPod]]:
    """Return the indexes that need a pod, each with the pods that it had."""
    found: dict[int, list[ChildPod]] = defaultdict(list)
    for pod in pods:
        index = parse_count(pod.metadata.annotations.completion_index)
        if index is not None:
            found[index].append(pod)
    wanted = min(job.spec.completions or 0, template_rules.pods_wanted(template))
    return {at: found[at] for at in range(wanted) if not _is_taken(job, at, found[at])}


def _is_taken(job: Job, index: int, pods: Sequence[ChildPod]) -> bool:
    """Return True if an index needs no further pod: it is over, or a pod has it still."""
    status = job.status
    if status.has_completed(index) or status.has_failed(index):
        return True
    return any(_occupies(pod) for pod in pods)


def _occupies(pod: ChildPod) -> bool:
    """Return True if a pod's containers may run, or the Job may count it as succeeded."""
    if pod.status.phase not in ENDED:
        return True
    uncounted = pod.is_interrupted and not pod.metadata.tracked
    return pod.status.phase == "Succeeded" and not uncounted


def _exceeds_limit(job: Job, pods: Sequence[ChildPod]) -> bool:
    """Return True if the Job is about to fail for its ``backoffLimit``."""
    limit = job.spec.backoff_limit
    if limit is None:
        return False
    uncounted = set(job.status.uncounted_terminated_pods.failed)
    more = [
        pod
        for pod in pods
        if pod.status.phase == "Failed"
        and pod.metadata.tracked
        and pod.metadata.uid not in uncounted
        and not is_leaving(pod)
    ]
    return replacement_delay.failures_of(job) + len(more) > limit


def _predecessor(
    job: Job, index: int, pods: Sequence[ChildPod], names: set[str], synced: int
) -> tuple[ChildPod | None, str]:
    """Return the latest failed pod of an index without a successor, and the name of that one.

    The Job controller writes to failed pods, so the latest version may be an earlier pod's.
    """
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    for pod in sorted(failed, key=_age, reverse=True):
        name = successor_name(job.metadata.name, index, f"{pod.metadata.uid}/{synced}")
        if name not in names:
            return pod, name
    uids = sorted(pod.metadata.uid for pod in pods)  # a name that exists could not be used
    seed = f"{job.metadata.uid}/{index}/{uids}/{synced}"
    return None, successor_name(job.metadata.name, index, seed)


def _age(pod: ChildPod) -> tuple[int, int]:
    return epoch_of(pod), version_number(pod.metadata.resource_version)


def _successor(
    index: int, name: str, last: ChildPod | None, synced: int, *, unfit: bool
) -> Successor | None:
    """Return the next pod of an index; ``None`` to leave it to the Job controller."""
    if last is None:
        return Successor(index=index, name=name)
    epoch, early = epoch_of(last), 0
    if not 0 < epoch <= synced:
        early = (parse_count(last.metadata.annotations.replaced_early) or 0) + 1
        if (epoch <= 0 and not unfit) or early > MAX_EARLY:
            return None
    return Successor(index=index, name=name, predecessor=last, early=early, unfit=unfit)


def _may_fail_the_job(template: Json, last: ChildPod) -> bool:
    """Return True if ``podFailurePolicy`` fails, or may fail, the Job or index for a pod's end.

    Exit codes of init containers are not cached.
    """
    if last.status.failed:
        return template_rules.fails_the_job(template, last.status.failed)
    rules = objects(child(template, "podFailurePolicy"), "rules")
    return any(rule.get("action") in template_rules.ENDING_ACTIONS for _, rule in rules)


def _wait_s(
    job: Job, last: ChildPod | None, since: float, failed_at: float | None, now: Now
) -> float | None:
    """Return the seconds until a pod is created here; ``None`` if the Job controller does it."""
    if last is not None and last.metadata.tracked and not is_leaving(last):
        return 0.0  # it counts, so the back-off of at least 10 s begins with its end
    failures = replacement_delay.failures_of(job)
    if not failures:
        return None
    if failed_at is not None and not job.status.succeeded:
        left_s = failed_at + replacement_delay.delay_s(failures) - now.monotonic
        if left_s > MARGIN_S:
            return 0.0
    return max(0.0, since + PATIENCE_S - now.monotonic)
