"""Taking the Job controller's finalizer off pods that leave."""

from __future__ import annotations

import pytest

from jobsetpy import runtime as rt
from jobsetpy.aio import ManualClock
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.errors import ConflictError
from jobsetpy.reconcilers.restart_in_place.leaving_pods import (
    COUNTED_LEAVING,
    LeavingPodsReconciler,
    LeavingPodsSettings,
)
from jobsetpy.testing import store_writer_of
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job
from support.restarts.epoch_steps import caches_of

KEY = rt.ObjectKey("default", "test-js")
AT = "2026-01-01T00:00:00Z"


class Client:
    """Notes patches; each may be refused."""

    def __init__(self, refusal=None):
        self.patches = []
        self.refusal = refusal

    async def merge_patch(self, _cls, namespace, name, body):
        self.patches.append((namespace, name, body["metadata"]["uid"]))
        if self.refusal is not None:
            raise self.refusal


def job(uid="j"):
    owner = {"apiVersion": f"{keys.GROUP}/v1alpha2", "kind": "JobSet", "name": "test-js",
             "uid": "js-uid", "controller": True}  # fmt: skip
    labels = {keys.JOBSET_NAME: "test-js", keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: "0"}
    meta = {"name": "j", "namespace": "default", "uid": uid, "labels": labels,
            "ownerReferences": [owner]}  # fmt: skip
    return decoded(Job, {"metadata": meta, "spec": {"parallelism": 1}})


def pod(uid="p-uid", *, grace=None, phase="Running", tracked=True, job_uid="j"):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job_uid,
             "controller": True}  # fmt: skip
    meta = {"name": "p", "namespace": "default", "uid": uid, "ownerReferences": [owner],
            "labels": {keys.JOBSET_NAME: "test-js"},
            "finalizers": [keys.JOB_TRACKING_FINALIZER] if tracked else []}  # fmt: skip
    if grace is not None:
        meta |= {"deletionTimestamp": AT, "deletionGracePeriodSeconds": grace}
    body = {"metadata": meta, "spec": {"nodeName": "n"}, "status": {"phase": phase}}
    return decoded(ChildPod, body)


class Rig:
    """The reconciler with caches that the test fills."""

    def __init__(self, client=None):
        body = jobset_json(
            replicated_job("w", 1), failurePolicy={"restartStrategy": "InPlaceRestart"}
        )
        self.client = client or Client()
        self.jobs = store_writer_of(Job, [job()])
        self.pods = store_writer_of(ChildPod, indexes=[COUNTED_LEAVING])
        caches = caches_of(
            self.client,
            ManualClock(),
            jobsets=store_writer_of(JobSet, [decoded(JobSet, body)]).store,
            jobs=self.jobs.store,
            pods=self.pods.store,
        )
        self.reconciler = LeavingPodsReconciler(caches, LeavingPodsSettings())
        self.known = None

    def see(self, new):
        """A pod event; the keys that are asked for."""
        if new is None:
            self.pods.delete(rt.ObjectKey("default", "p"))
        else:
            self.pods.apply(new)
        requests = self.reconciler.on_pod(rt.Event(self.known, new))
        self.known = new
        return [request.key for request in requests]

    async def reconcile(self):
        """Reconcile; the UIDs that were patched."""
        await self.reconciler.reconcile(rt.Request(KEY))
        return [uid for _, _, uid in self.client.patches]


async def test_pod_is_patched_once_when_it_begins_to_leave():
    """Further events of the pod ask for nothing."""
    rig = Rig()
    asked = [rig.see(pod()), rig.see(pod(grace=30)), rig.see(pod(grace=30, phase="Failed"))]

    assert asked == [[], [KEY], []]
    assert await rig.reconcile() == ["p-uid"]
    rig.see(pod(grace=30, tracked=False))
    assert await rig.reconcile() == ["p-uid"]


async def test_pod_that_has_ended_before_the_reconcile_is_patched_when_it_was_seen_leaving():
    """The kubelet takes the grace period away once the pod has ended."""
    rig = Rig()
    rig.see(pod(grace=30))
    rig.see(pod(grace=0, phase="Succeeded"))

    assert await rig.reconcile() == ["p-uid"]


async def test_pod_that_is_deleted_after_its_end_is_left_alone():
    """It has succeeded; nothing says that it was told to leave."""
    rig = Rig()
    asked = [rig.see(pod(phase="Succeeded")), rig.see(pod(grace=0, phase="Succeeded"))]

    assert asked == [[], []]
    assert await rig.reconcile() == []


async def test_pod_of_another_job_is_left_alone():
    """Labels prove nothing: the pod's Job has to be the JobSet's, by UID."""
    rig = Rig()
    rig.see(pod(grace=30, job_uid="other"))

    assert await rig.reconcile() == []


@pytest.mark.parametrize("known", [False, True])
async def test_job_that_becomes_known_late_asks_for_its_leaving_pods(known):
    """The two watches are not in step."""
    rig = Rig()
    if known:
        rig.see(pod(grace=30))

    requests = rig.reconciler.on_job(rt.Event(None, job()))

    assert [request.key for request in requests] == ([KEY] if known else [])


async def test_another_pod_of_the_name_is_no_failure():
    """The UID in the patch is a precondition."""
    refusal = ConflictError(409, "Conflict", "uid", verb="patch", target="p")
    rig = Rig(Client(refusal))
    rig.see(pod(grace=30))

    assert await rig.reconcile() == ["p-uid"]


async def test_nothing_is_remembered_of_a_pod_that_is_gone():
    """A pod of the same name starts from the beginning."""
    rig = Rig()
    rig.see(pod(grace=30))
    rig.see(None)

    assert rig.reconciler._told == set()
