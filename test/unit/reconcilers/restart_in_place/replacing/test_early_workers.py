"""Pods whose workers run although the barrier of their epoch is closed."""

from __future__ import annotations

import attrs
import pytest

from jobsetpy import runtime as rt
from jobsetpy.aio import ManualClock
from jobsetpy.api.batch import Job
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.reconcilers.execution.caches import POD_INDEXES
from jobsetpy.reconcilers.restart_in_place.failures.pod_changes import STATUS_LAG_S
from jobsetpy.reconcilers.restart_in_place.replacing.early_workers import (
    AGENT_ENDS_S,
    ObservedWorker,
    plan_early,
)
from jobsetpy.reconcilers.restart_in_place.replacing.early_workers_reconciler import (
    EarlyWorkersReconciler,
)
from jobsetpy.testing import store_of, store_writer_of
from support.jobsets import replicated_job
from support.restarts import epoch_plans
from support.restarts.epoch_plans import RULE, job
from support.restarts.epoch_steps import caches_of

KEY = rt.ObjectKey("default", "p")
WORKER = {"name": "worker", "restartPolicy": "Never", "restartPolicyRules": [RULE]}
SIDECAR = {"name": "jobset-agent", "restartPolicy": "Always", "restartPolicyRules": [RULE]}
SUPERVISED = {"name": "worker", "command": ["/opt/jobset-agent/supervise", "train"]}


def jobset(synced=1, *, container=WORKER, agents=(SIDECAR,), **fields):
    """Return a JobSet whose pods have a sidecar agent."""
    spec = {"initContainers": [*agents], "containers": [container]}
    item = replicated_job("w", parallelism=4, pod_spec=spec)
    return epoch_plans.jobset(synced, items=[item], **fields)


def pod(epoch=2, state="running", **fields):
    """Return a pod with the state of its worker."""
    one = {"name": "worker", "state": {state: {}}}
    return epoch_plans.pod("p", epoch, node="n", containers=[one], **fields)


CASES = {
    "runs at a closed barrier": ({}, True),
    "waits there": ({"pod": pod(state="waiting")}, False),
    "runs at the synced epoch": ({"pod": pod(1)}, False),
    "has no epoch": ({"pod": pod(None)}, False),
    "reports an attempt": (
        {"pod": pod(None, notes={"jobset.sigs.k8s.io/in-place-restart-attempt": 3})}, False,
    ),
    "is being deleted": ({"pod": pod(deleted=True)}, False),
    "is gone": ({"pod": None}, False),
    "has a supervisor": ({"jobset": jobset(container=SUPERVISED, agents=())}, False),
    "belongs to a suspended job": ({"job": job(spec={"suspend": True})}, False),
    "belongs to another controller": ({"jobset": jobset(managedBy="example.com/other")}, False),
    "may have an old status": ({"certain": False}, False),
    "has had one for long": ({"certain": False, "since_s": STATUS_LAG_S}, True),
    "has a node that is not ready": (
        {"certain": False, "since_s": STATUS_LAG_S, "node_ready": False}, False,
    ),
    "may be ended by its agent": ({"since_s": AGENT_ENDS_S - 1}, False),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_pod_is_deleted_or_not_when_it(case):
    """Only a worker that the barrier should hold, and that its agent has not ended."""
    fields, expected = CASES[case]
    observed = ObservedWorker(
        pod=pod(), job=job(), jobset=jobset(), certain=True, since_s=AGENT_ENDS_S
    )

    assert plan_early(attrs.evolve(observed, **fields)).delete is expected


class Client:
    """Client with one JobSet, which records deletions."""

    def __init__(self):
        self.jobset = jobset()
        self.deleted = []

    async def get(self, _cls, _namespace, _name):
        return self.jobset

    async def delete(self, _cls, _namespace, name, *, uid):
        self.deleted.append((name, uid))


def test_supervisors_request_nothing():
    """Their containers run at every barrier: thousands of pods would be queued at each restart."""
    of = jobset(container=SUPERVISED, agents=())
    stores = {"jobsets": store_of(JobSet, [of]), "jobs": store_of(Job, [job()])}
    pods = store_writer_of(ChildPod, [pod()], indexes=POD_INDEXES).store
    reconciler = EarlyWorkersReconciler(caches_of(Client(), ManualClock(), pods=pods, **stores))

    assert reconciler.on_pod(rt.Event(pod(1), pod())) == ()


@pytest.mark.parametrize("waited", [True, False], ids=["waited before", "ran when first seen"])
@pytest.mark.parametrize("lifted", [False, True], ids=["closed", "lifted in the API server"])
async def test_early_worker_is_deleted_once_with_an_event(waited, lifted):
    """Any reconcile may be the first; the API server decides about the barrier."""
    client, clock = Client(), ManualClock()
    pods = store_writer_of(ChildPod, [pod()], indexes=POD_INDEXES)
    stores = {"jobsets": store_of(JobSet, [jobset()]), "jobs": store_of(Job, [job()])}
    nodes = store_writer_of(LabelledNode).store
    caches = caches_of(client, clock, pods=pods.store, nodes=nodes, **stores)
    reconciler = EarlyWorkersReconciler(caches)
    old = pod(state="waiting") if waited else None
    assert [one.key for one in reconciler.on_pod(rt.Event(old, pod()))] == [KEY]
    assert reconciler.on_pod(rt.Event(pod(), pod())) == ()
    client.jobset = jobset(2 if lifted else 1)

    first = await reconciler.reconcile(rt.Request(KEY))
    assert first.delay.total_seconds() == (AGENT_ENDS_S if waited else STATUS_LAG_S)
    clock.advance(first.delay.total_seconds())
    await reconciler.reconcile(rt.Request(KEY))

    assert client.deleted == ([] if lifted else [("p", "p")])
    reasons = [reason for _, _, reason, _ in caches.events.emitted]
    assert reasons == ([] if lifted else ["WorkerStartedEarly"])
