"""Removal of the Job controller's finalizer from pods that leave."""

from __future__ import annotations

import pytest

from jobsetpy import runtime as rt
from jobsetpy.aio import ManualClock
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.errors import ConflictError
from jobsetpy.reconcilers.execution.caches import POD_INDEXES
from jobsetpy.reconcilers.restart_in_place.replacing.uncounted import CHECKS
from jobsetpy.reconcilers.restart_in_place.replacing.uncounted_reconciler import (
    REMEMBERED_S,
    LeavingPodsReconciler,
)
from jobsetpy.testing import store_of, store_writer_of
from support.restarts import epoch_plans
from support.restarts.epoch_plans import job, jobset
from support.restarts.epoch_steps import caches_of

KEY = rt.ObjectKey("default", "p")


class Client:
    """Client that records patches and returns the pod in a phase, or refuses them."""

    def __init__(self, refusal=None, phase="Running"):
        self.patches = []
        self.refusal = refusal
        self.phase = phase

    async def merge_patch(self, cls, _namespace, name, body):
        self.patches.append((cls.__name__, name, body["metadata"]["uid"]))
        if self.refusal is not None:
            raise self.refusal
        return pod(grace=30, phase=self.phase, tracked=False)


def pod(uid="p-uid", *, name="p", **fields):
    """Return a pod of the Job."""
    return epoch_plans.pod(name, None, uid=uid, index=0, node="n", **fields)


class Rig:
    """The reconciler with caches that the test fills."""

    def __init__(self, client=None):
        self.client = client or Client()
        self.jobs = store_writer_of(Job, [job()])
        self.pods = store_writer_of(ChildPod, indexes=POD_INDEXES)
        self.clock = ManualClock()
        jobsets = store_of(JobSet, [jobset()])
        stores = {"jobsets": jobsets, "jobs": self.jobs.store, "pods": self.pods.store}
        self.reconciler = LeavingPodsReconciler(caches_of(self.client, self.clock, **stores))
        self.known = None

    def elect(self):
        """Return the keys that are queued when this manager begins to lead."""
        requests = [self.reconciler.on_job(rt.Event(None, job(), initial=True)) for _ in range(2)]
        return [[request.key for request in each] for each in requests]

    def see(self, new):
        """Process a pod event, and return the keys that are queued."""
        if new is None:
            self.pods.delete(KEY)
        else:
            self.pods.apply(new)
        requests = self.reconciler.on_pod(rt.Event(self.known, new))
        self.known = new
        return [request.key for request in requests]

    async def reconcile(self):
        """Return all patches so far, and whether another check follows."""
        result = await self.reconciler.reconcile(rt.Request(KEY))
        return self.client.patches, result.delay is not None


POD, JOB = ("ChildPod", "p", "p-uid"), ("Job", "j", "j")


async def test_pod_is_patched_once_when_it_begins_to_leave():
    """Its further events queue nothing, and the pod is forgotten."""
    rig = Rig()
    queued = [rig.see(pod()), rig.see(pod(grace=30)), rig.see(pod(grace=30, phase="Failed"))]

    assert queued == [[], [KEY], []]
    assert await rig.reconcile() == ([POD], False)
    assert await rig.reconcile() == ([POD], False)
    assert rig.reconciler._leaving == {}


async def test_pod_that_has_ended_before_the_reconcile_is_patched_when_its_leaving_was_observed():
    """The kubelet removes the grace period once the pod has ended."""
    rig = Rig(Client(phase="Succeeded"))
    rig.see(pod(grace=30))
    rig.see(pod(grace=0, phase="Succeeded"))

    assert await rig.reconcile() == ([POD], True)


@pytest.mark.parametrize("gone", [False, True])
async def test_job_is_marked_when_it_has_counted_a_pod_that_was_asked_to_leave(gone):
    """It would never replace the pod."""
    rig = Rig(Client(phase="Succeeded"))
    rig.see(pod(grace=30))
    if not gone:
        rig.see(pod(grace=0, phase="Succeeded"))
        await rig.reconcile()
    rig.see(None)
    rig.jobs.apply(job(completedIndexes="0"))

    assert await rig.reconcile() == ([JOB] if gone else [POD, JOB], False)
    assert rig.reconciler._leaving == {}


async def test_job_that_has_not_counted_the_pod_is_left_alone_after_some_checks():
    """The Job controller counts within about a second."""
    rig = Rig(Client(phase="Succeeded"))
    rig.see(pod(grace=30))
    rig.see(pod(grace=0, phase="Succeeded"))
    await rig.reconcile()
    rig.see(None)
    for _ in range(CHECKS):
        await rig.reconcile()

    assert (rig.client.patches, rig.reconciler._leaving) == ([POD], {})


async def test_pod_of_another_job_is_left_alone():
    """Labels prove nothing: the pod's Job has to be the JobSet's, by UID."""
    rig = Rig()
    rig.see(pod(grace=30, job="other", job_name="j"))

    assert await rig.reconcile() == ([], True)


async def test_conflict_is_no_failure_when_another_pod_has_the_name():
    """The UID in the patch is a precondition."""
    refusal = ConflictError(409, "Conflict", "uid", verb="patch", target="p")
    rig = Rig(Client(refusal))
    rig.see(pod(grace=30))

    assert await rig.reconcile() == ([POD], True)
    assert rig.see(pod("q-uid", grace=30)) == [KEY]


async def test_job_is_marked_when_its_pod_left_and_ended_before_the_election():
    """The manager that is elected has observed the pod leave; it no longer exists."""
    rig = Rig()
    rig.see(pod(grace=30))
    rig.see(None)
    rig.jobs.apply(job(completedIndexes="0"))

    assert rig.elect() == [[KEY], []]
    assert await rig.reconcile() == ([JOB], False)


async def test_job_is_left_alone_when_a_replacement_has_completed_the_index():
    """The former leader handled the pod that left, and its replacement did the work."""
    rig = Rig()
    rig.see(pod(grace=30))
    rig.see(None)
    rig.pods.apply(pod("q-uid", name="q", phase="Succeeded"))
    rig.jobs.apply(job(completedIndexes="0"))

    assert await rig.reconcile() == ([], False)


async def test_pods_are_forgotten_when_another_process_leads_for_long():
    """A manager that does not lead keeps the pods of a few minutes only."""
    rig = Rig()
    rig.see(pod(grace=30))
    rig.clock.advance(REMEMBERED_S + 1)
    rig.see(pod("q-uid", name="q", grace=30))

    assert [key.name for key in rig.reconciler._leaving] == ["q"]
    assert [[key.name for key in each] for each in rig.elect()] == [["q"], []]
