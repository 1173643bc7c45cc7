"""Creating the successors of failed pods."""

from __future__ import annotations

import attrs
import pytest

from jobsetpy import runtime as rt
from jobsetpy.aio import ManualClock
from jobsetpy.api import keys
from jobsetpy.api._wire import to_json
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.errors import AlreadyExistsError, ForbiddenError, NotFoundError, StreamBrokenError
from jobsetpy.reconcilers.execution.caches import PODS_OF_JOBSET
from jobsetpy.reconcilers.execution.kinds import WholeJob
from jobsetpy.reconcilers.restart_in_place.successor_body import failures_after, successor_body
from jobsetpy.reconcilers.restart_in_place.successor_pods import (
    SuccessorPodsReconciler,
    SuccessorSettings,
)
from jobsetpy.reconcilers.restart_in_place.successors import REFUSED_FIRST_S, Successor
from jobsetpy.testing import store_writer_of
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job
from support.restarts.epoch_steps import caches_of

KEY = rt.ObjectKey("default", "test-js-w-0")
TEMPLATE = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["example.com/f"]},
    "spec": {
        "subdomain": "test-js",
        "initContainers": [{"name": "i"}],
        "containers": [{"name": "w", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "own"}]}],
    },
}


def refusal(cls, reason="Forbidden"):
    """An answer of the API server."""
    return cls(403, reason, "exceeded quota", verb="create", target="pods")


class Client:
    """Keeps the Job, notes what is created, and may refuse it."""

    def __init__(self, job, error=None):
        self.job = job
        self.error = error
        self.created = []
        self.failures = "4"

    async def get(self, cls, _namespace, _name):
        if cls is Pod:
            notes = {keys.INDEX_FAILURES_ANNOTATION: self.failures}
            return decoded(Pod, {"metadata": {"annotations": notes}})
        if self.job is None:
            raise NotFoundError(404, "NotFound", "", verb="get", target="jobs")
        return decoded(WholeJob, self.job)

    async def create(self, _cls, _namespace, body):
        self.created.append(body)
        if self.error is not None:
            raise self.error


class Events:
    """Notes reasons and messages."""

    def __init__(self):
        self.told = []

    def event(self, obj, type_, reason, message, **_):
        self.told.append((type(obj).__name__, type_, reason, message))


def job_json(**spec):
    owner = {"apiVersion": f"{keys.GROUP}/v1alpha2", "kind": "JobSet", "name": "test-js",
             "uid": "js-uid", "controller": True}  # fmt: skip
    labels = {keys.JOBSET_NAME: "test-js", keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: "0",
              keys.RESTART_ATTEMPT: "0"}  # fmt: skip
    meta = {"name": KEY.name, "namespace": KEY.namespace, "uid": "j", "labels": labels,
            "resourceVersion": "5", "ownerReferences": [owner]}  # fmt: skip
    return {
        "metadata": meta,
        "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed",
                 "backoffLimit": keys.INT32_MAX, "template": TEMPLATE, **spec},
        "status": {},
    }  # fmt: skip


def pod(index=0, phase="Failed", code=1):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": KEY.name, "uid": "j",
             "controller": True}  # fmt: skip
    notes = {keys.COMPLETION_INDEX_ANNOTATION: str(index), keys.EPOCH_ANNOTATION: "1"}
    meta = {"name": f"p{index}", "namespace": "default", "uid": f"p{index}", "annotations": notes,
            "labels": {keys.JOBSET_NAME: "test-js"}, "ownerReferences": [owner],
            "finalizers": [keys.JOB_TRACKING_FINALIZER]}  # fmt: skip
    ended = (
        [{"name": "w", "state": {"terminated": {"exitCode": code}}}] if phase == "Failed" else []
    )
    status = {"phase": phase, "containerStatuses": ended}
    return decoded(ChildPod, {"metadata": meta, "spec": {"nodeName": "n"}, "status": status})


class Rig:
    """The reconciler with caches that the test fills."""

    def __init__(self, *pods, error=None, live=None, **spec):
        body = jobset_json(
            replicated_job("w", 1, parallelism=2),
            failurePolicy={"restartStrategy": "InPlaceRestart"},
        )
        body["status"] = {"syncedEpoch": 1}
        self.client = Client(live or job_json(**spec), error)
        self.clock = ManualClock()
        self.events = Events()
        caches = caches_of(
            self.client,
            self.clock,
            jobsets=store_writer_of(JobSet, [decoded(JobSet, body)]).store,
            jobs=store_writer_of(Job, [decoded(Job, job_json(**spec))]).store,
            pods=store_writer_of(
                ChildPod, pods or [pod(), pod(1, "Running")], indexes=[PODS_OF_JOBSET]
            ).store,
        )
        caches.events = self.events
        self.reconciler = SuccessorPodsReconciler(caches, SuccessorSettings())

    async def reconcile(self):
        """Reconcile; the indexes of all pods created so far, and the delay of the next try."""
        result = await self.reconciler.reconcile(rt.Request(KEY))
        created = [body["metadata"]["annotations"] for body in self.client.created]
        delay = None if result.delay is None else result.delay.total_seconds()
        return [notes[keys.COMPLETION_INDEX_ANNOTATION] for notes in created], delay


async def test_successor_is_created_and_reported():
    """As by the Job controller, whose event it is."""
    rig = Rig()

    assert await rig.reconcile() == (["0"], None)
    ((kind, type_, reason, message),) = rig.events.told
    assert (kind, type_, reason) == ("WholeJob", "Normal", "SuccessfulCreate")
    assert message == f"Created pod: {rig.client.created[0]['metadata']['name']}"


async def test_unfit_node_is_reported_with_the_successor():
    """On the JobSet, whose pods avoid it."""
    rig = Rig(pod(code=85), pod(1, "Running"))

    await rig.reconcile()
    kind, type_, reason, message = rig.events.told[-1]
    assert (kind, type_, reason) == ("JobSet", "Warning", "NodeUnfit")
    assert "pod 'p0' has ended because node 'n' is unfit for it" in message


async def test_nothing_is_created_when_the_job_is_suspended_meanwhile():
    """The API server's Job decides, not the cached one."""
    rig = Rig(live=job_json(suspend=True))

    assert await rig.reconcile() == ([], None)


async def test_nothing_is_created_when_the_job_is_gone():
    """Its pods go as well."""
    rig = Rig()
    rig.client.job = None

    assert await rig.reconcile() == ([], None)


async def test_pod_that_exists_is_no_failure():
    """Another manager, or this one before its cache knew, has created it."""
    rig = Rig(error=refusal(AlreadyExistsError, "AlreadyExists"))

    assert await rig.reconcile() == (["0"], None)
    assert rig.events.told == []


async def test_refusal_is_reported_and_stops_the_others():
    """A quota that refuses one pod refuses the others; the pause grows."""
    rig = Rig(pod(), pod(1), error=refusal(ForbiddenError))
    first = await rig.reconcile()
    held = await rig.reconcile()
    rig.clock.advance(REFUSED_FIRST_S)
    again = await rig.reconcile()

    assert (first, held) == ((["0"], REFUSED_FIRST_S), (["0"], REFUSED_FIRST_S))
    assert again == (["0", "0"], 2 * REFUSED_FIRST_S)
    assert {each[:3] for each in rig.events.told} == {("WholeJob", "Warning", "FailedCreate")}
    assert "exceeded quota" in rig.events.told[0][3]


async def test_broken_connection_is_tried_again():
    """The queue's back-off decides when."""
    rig = Rig(error=StreamBrokenError("gone"))

    with pytest.raises(ExceptionGroup):
        await rig.reconcile()


@pytest.mark.parametrize(("limit", "expected"), [(5, ["0"]), (4, [])])
async def test_failures_of_an_index_are_counted_up_to_its_limit(limit, expected):
    """Above it the Job controller fails the index."""
    rig = Rig(backoffLimitPerIndex=limit)
    created, _ = await rig.reconcile()

    assert created == expected
    for body in rig.client.created:
        assert body["metadata"]["annotations"][keys.INDEX_FAILURES_ANNOTATION] == "5"


@pytest.mark.parametrize(("text", "expected"), [(None, 1), ("0", 1), ("7", 8), ("x", 1)])
def test_failures_after_a_pod(text, expected):
    """The annotation of the pod before, and its own failure."""
    notes = {} if text is None else {keys.INDEX_FAILURES_ANNOTATION: text}

    assert failures_after(notes) == expected


def test_events_ask_for_the_job():
    """A pod that fails, and a Job that counts more failures or is found so."""
    rig = Rig()
    running, failed = pod(0, "Running"), pod()
    old = decoded(Job, job_json())
    new = attrs.evolve(old, status=attrs.evolve(old.status, failed=1))

    assert list(rig.reconciler.on_pod(rt.Event(None, running))) == []
    assert list(rig.reconciler.on_pod(rt.Event(running, failed))) == [rt.Request(KEY)]
    assert list(rig.reconciler.on_job(rt.Event(None, old))) == []
    assert list(rig.reconciler.on_job(rt.Event(old, new))) == [rt.Request(KEY)]
    assert list(rig.reconciler.on_job(rt.Event(None, new, initial=True))) == [rt.Request(KEY)]


def test_job_that_begins_to_miss_pods_asks_for_a_plan():
    """It resumes in its back-off, or the Job controller has just noticed that pods are gone."""

    def of(suspend, active):
        body = job_json(suspend=suspend)
        body["status"] = {"failed": 1, "active": active}
        return decoded(Job, body)

    rig = Rig()
    asked = [rt.Request(KEY)]

    assert list(rig.reconciler.on_job(rt.Event(of(True, 0), of(False, 0)))) == asked
    assert list(rig.reconciler.on_job(rt.Event(of(False, 2), of(False, 1)))) == asked
    assert list(rig.reconciler.on_job(rt.Event(of(False, 1), of(False, 1)))) == []
    assert list(rig.reconciler.on_job(rt.Event(of(False, 1), of(True, 0)))) == []


def body(**more):
    """A pod for index 3."""
    template = to_json(decoded(WholeJob, job_json()))["spec"]["template"]
    return successor_body("j", "u", template, Successor(index=3, name="j-3-x"), **more)


def test_pod_is_that_of_the_job_controller():
    """Owner, finalizer, index, host name and variable; the template's own values stay."""
    made = body()
    field = {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}

    assert made["metadata"] == {
        "name": "j-3-x",
        "labels": {"a": "b", keys.COMPLETION_INDEX_LABEL: "3"},
        "annotations": {"c": "d", keys.COMPLETION_INDEX_ANNOTATION: "3"},
        "finalizers": ["example.com/f", keys.JOB_TRACKING_FINALIZER],
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True,
             "blockOwnerDeletion": True}
        ],
    }  # fmt: skip
    assert made["spec"] == {
        "subdomain": "test-js",
        "hostname": "j-3",
        "initContainers": [
            {"name": "i", "env": [
                {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field}}
            ]}
        ],
        "containers": TEMPLATE["spec"]["containers"],
    }  # fmt: skip


def test_pod_prefers_other_nodes():
    """One requirement for each, all of which a node has to meet."""
    made = body(avoid=("b", "a"))["spec"]["affinity"]["nodeAffinity"]
    fields = [
        {"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in ("a", "b")
    ]

    assert made == {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchFields": fields}}
        ]
    }


def test_preference_for_other_nodes_has_no_rival():
    """Spreading prefers the node that a pod has left, with the same weight; what must hold stays."""
    terms = {"preferredDuringSchedulingIgnoredDuringExecution": [{}],
             "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack"}]}  # fmt: skip
    soft = {"topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}
    hard = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    spec = {"containers": [], "affinity": {"podAntiAffinity": terms}}

    def made(*constraints, **settings):
        template = {"spec": {**spec, "topologySpreadConstraints": [*constraints]}}
        one = Successor(index=0, name="x")
        return successor_body("j", "u", template, one, **settings)["spec"]

    avoiding = made(soft, hard, avoid=("a",))
    assert [*avoiding["affinity"]["podAntiAffinity"]] == [
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert avoiding["topologySpreadConstraints"] == [hard]
    (one,) = made(avoid=("a",))["topologySpreadConstraints"]
    assert one["whenUnsatisfiable"] == "ScheduleAnyway"
    for other in (made(soft, hard), made(soft, hard, avoid=("a",), required=True)):
        assert other["topologySpreadConstraints"] == [soft, hard]
        assert other["affinity"]["podAntiAffinity"] == terms


def test_pod_requires_other_nodes_in_each_of_its_terms():
    """Terms are alternatives."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    template = {"spec": {"containers": [], "affinity": {"nodeAffinity": required}}}
    one = Successor(index=0, name="x")
    made = successor_body("j", "u", template, one, avoid=("a",), required=True)
    found = made["spec"]["affinity"]["nodeAffinity"]
    field = [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]

    assert found["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {**terms[0], "matchFields": field},
        {"matchFields": field},
    ]
    assert terms[1] == {}
