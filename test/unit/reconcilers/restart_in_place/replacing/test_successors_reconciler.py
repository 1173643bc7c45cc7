"""Creation of the successors of failed pods."""

from __future__ import annotations

import pytest

from jobsetpy import runtime as rt
from jobsetpy.aio import ManualClock
from jobsetpy.api import keys
from jobsetpy.api._wire import to_json
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.errors import AlreadyExistsError, ForbiddenError, NotFoundError, StreamBrokenError
from jobsetpy.reconcilers.execution.caches import POD_INDEXES
from jobsetpy.reconcilers.execution.kinds import WholeJob
from jobsetpy.reconcilers.restart_in_place.replacing.successor_pod import (
    failures_after,
    successor_body,
)
from jobsetpy.reconcilers.restart_in_place.replacing.successors import REFUSED_FIRST_S, Successor
from jobsetpy.reconcilers.restart_in_place.replacing.successors_reconciler import (
    SuccessorPodsReconciler,
)
from jobsetpy.testing import store_of
from support.jobsets import decoded, replicated_job
from support.restarts import epoch_plans
from support.restarts.epoch_plans import ended, jobset
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
    """Return an error of the API server."""
    return cls(403, reason, "exceeded quota", verb="create", target="pods")


class Client:
    """Client that has the Job, records created pods, and may refuse them."""

    def __init__(self, job, error=None):
        self.job = job
        self.error = error
        self.created = []
        self.deleted = []
        self.failures = "4"

    async def get(self, cls, _namespace, _name):
        if cls is Pod:
            notes = {keys.INDEX_FAILURES_ANNOTATION: self.failures}
            return decoded(Pod, {"metadata": {"annotations": notes}})
        if self.job is None:
            raise NotFoundError(404, "NotFound", "", verb="get", target="jobs")
        return self.job

    async def merge_patch(self, _cls, _namespace, name, body):
        self.deleted.append((name, body["metadata"]))

    async def delete(self, _cls, _namespace, name, *, uid):
        self.deleted.append((name, uid))
        if self.error is not None:
            raise self.error

    async def create(self, _cls, _namespace, body):
        self.created.append(body)
        if self.error is not None:
            raise self.error


def job(cls=Job, *, status=None, **spec):
    """Return the Job, as the cache has it or, as a ``WholeJob``, as the API server does."""
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed",
            "backoffLimit": keys.INT32_MAX, "template": TEMPLATE, **spec}  # fmt: skip
    return epoch_plans.job(KEY.name, cls=cls, spec=spec, **(status or {}))


def pod(index=0, phase="Failed", code=1):
    """Return one of its pods."""
    containers = [ended(code)] if phase == "Failed" else []
    where = {"job": KEY.name, "index": index, "node": "n"}
    return epoch_plans.pod(f"p{index}", phase=phase, containers=containers, **where)


class Rig:
    """The reconciler with caches that the test fills."""

    def __init__(self, *pods, error=None, live=None, **spec):
        of = jobset(items=[replicated_job("w", parallelism=2)])
        pods = pods or [pod(), pod(1, "Running")]
        self.client = Client(live or job(WholeJob, **spec), error)
        self.clock = ManualClock()
        caches = caches_of(
            self.client,
            self.clock,
            jobsets=store_of(JobSet, [of]),
            jobs=store_of(Job, [job(**spec)]),
            pods=store_of(ChildPod, pods, indexes=POD_INDEXES),
        )
        self.events = caches.events
        self.reconciler = SuccessorPodsReconciler(caches)

    async def reconcile(self):
        """Return the indexes of all pods created so far, and the delay of the next attempt."""
        result = await self.reconciler.reconcile(rt.Request(KEY))
        created = [body["metadata"]["annotations"] for body in self.client.created]
        delay = None if result.delay is None else result.delay.total_seconds()
        return [notes[keys.COMPLETION_INDEX_ANNOTATION] for notes in created], delay


class Reads:
    """Store that counts the objects that it returns by an index."""

    def __init__(self, store):
        self.store = store
        self.objects = 0

    def by_index(self, index, value):
        found = self.store.by_index(index, value)
        self.objects += len(found)
        return found


async def test_pods_of_other_jobs_of_the_jobset_are_not_read():
    """A reconcile of each of many Jobs would take time by the square of their number otherwise."""
    other = [epoch_plans.pod(f"other-{index}", job="test-js-w-1") for index in range(50)]
    rig = Rig(pod(), pod(1, "Running"), *other)
    rig.reconciler._pods = reads = Reads(rig.reconciler._pods)

    assert (await rig.reconcile())[0] == ["0"]
    assert reads.objects == 2 * 2


async def test_successor_is_created_and_reported():
    """By an event like those of the Job controller."""
    rig = Rig()

    assert await rig.reconcile() == (["0"], None)
    ((kind, type_, reason, message),) = rig.events.emitted
    assert (kind, type_, reason) == ("WholeJob", "Normal", "SuccessfulCreate")
    assert message == f"Created pod: {rig.client.created[0]['metadata']['name']}"


async def test_unfit_node_is_reported_with_the_successor():
    """On the JobSet, whose pods avoid it."""
    rig = Rig(pod(code=85), pod(1, "Running"))

    await rig.reconcile()
    kind, type_, reason, message = rig.events.emitted[-1]
    assert (kind, type_, reason) == ("JobSet", "Warning", "NodeUnfit")
    assert "pod 'p0' has ended because node 'n' is unfit for it" in message


async def test_nothing_is_created_when_the_job_is_suspended_meanwhile():
    """The API server's Job decides, not the cached one."""
    rig = Rig(live=job(WholeJob, suspend=True))

    assert await rig.reconcile() == ([], None)


async def test_nothing_is_created_when_the_job_is_gone():
    """Its pods are deleted as well."""
    rig = Rig()
    rig.client.job = None

    assert await rig.reconcile() == ([], None)


COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}


async def test_pod_is_deleted_when_it_was_created_as_its_job_finished():
    """Without its finalizer, which the Job controller would not remove; one that is gone is fine."""
    rig = Rig(pod(0, "Running"), status=COMPLETE)
    assert await rig.reconcile() == ([], None)
    assert rig.client.deleted == [("p0", {"uid": "p0", "finalizers": None}), ("p0", "p0")]
    ((kind, type_, reason, message),) = rig.events.emitted
    assert (kind, type_, reason) == ("WholeJob", "Normal", "SuccessfulDelete")
    assert message == "Deleted pod: p0, which was created while the Job finished"

    rig = Rig(pod(0, "Running"), status=COMPLETE, error=refusal(NotFoundError, "NotFound"))
    assert await rig.reconcile() == ([], None)
    assert rig.events.emitted == []


async def test_pod_is_not_deleted_when_its_job_has_not_finished():
    """The cached Job is of an earlier Job of the name."""
    rig = Rig(pod(0, "Running"), status=COMPLETE, live=job(WholeJob))

    assert await rig.reconcile() == ([], None)
    assert rig.client.deleted == []


def test_job_is_queued_when_it_finishes_or_a_pod_comes_after_that():
    """Either may be observed first, also by a manager that starts."""
    done, running = job(status=COMPLETE), pod(0, "Running")
    rig, finished = Rig(), Rig(status=COMPLETE)

    assert list(rig.reconciler.on_job(rt.Event(job(), done))) == [rt.Request(KEY)]
    assert list(rig.reconciler.on_job(rt.Event(None, done, initial=True))) == [rt.Request(KEY)]
    assert list(rig.reconciler.on_job(rt.Event(done, done))) == []
    assert list(finished.reconciler.on_pod(rt.Event(None, running))) == [rt.Request(KEY)]
    assert list(finished.reconciler.on_pod(rt.Event(running, running))) == []


async def test_pod_that_exists_is_no_failure():
    """Another manager, or this one before its cache knew, has created it."""
    rig = Rig(error=refusal(AlreadyExistsError, "AlreadyExists"))

    assert await rig.reconcile() == (["0"], None)
    assert rig.events.emitted == []


async def test_refusal_is_reported_and_stops_the_others():
    """A quota that refuses one pod refuses the others; the pause grows."""
    rig = Rig(pod(), pod(1), error=refusal(ForbiddenError))
    first = await rig.reconcile()
    held = await rig.reconcile()
    rig.clock.advance(REFUSED_FIRST_S)
    again = await rig.reconcile()

    assert (first, held) == ((["0"], REFUSED_FIRST_S), (["0"], REFUSED_FIRST_S))
    assert again == (["0", "0"], 2 * REFUSED_FIRST_S)
    assert {each[:3] for each in rig.events.emitted} == {("WholeJob", "Warning", "FailedCreate")}
    assert "exceeded quota" in rig.events.emitted[0][3]


async def test_reconcile_fails_when_the_connection_breaks():
    """The queue's back-off decides when it is tried again."""
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


def test_job_is_queued_when_a_pod_fails_or_the_job_has_more_failures():
    """Also if it has failures when it is listed."""
    rig = Rig()
    running, failed = pod(0, "Running"), pod()
    old, new = job(), job(status={"failed": 1})

    assert list(rig.reconciler.on_pod(rt.Event(None, running))) == []
    assert list(rig.reconciler.on_pod(rt.Event(running, failed))) == [rt.Request(KEY)]
    assert list(rig.reconciler.on_job(rt.Event(None, old))) == []
    assert list(rig.reconciler.on_job(rt.Event(old, new))) == [rt.Request(KEY)]
    assert list(rig.reconciler.on_job(rt.Event(None, new, initial=True))) == [rt.Request(KEY)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((True, 0), (False, 0), [rt.Request(KEY)]),
        ((False, 2), (False, 1), [rt.Request(KEY)]),
        ((False, 1), (False, 1), []),
        ((False, 1), (True, 0), []),
    ],
    ids=["resumed", "fewer active pods", "no change", "suspended"],
)
def test_job_is_queued_when_it_begins_to_miss_pods(old, new, expected):
    """It resumes in its back-off, or the Job controller has just noticed that pods are gone."""
    old, new = (
        job(suspend=suspend, status={"failed": 1, "active": active})
        for suspend, active in (old, new)
    )

    assert list(Rig().reconciler.on_job(rt.Event(old, new))) == expected


def body(**more):
    """Return a pod for index 3."""
    template = to_json(job(WholeJob))["spec"]["template"]
    return successor_body("j", "u", template, Successor(index=3, name="j-3-x"), **more)


def test_pod_is_like_those_of_the_job_controller():
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


def test_other_preferences_are_removed_when_pods_prefer_other_nodes():
    """Spreading prefers the node that a pod has left, with the same weight; requirements stay."""
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
    other = made(soft, hard)
    assert other["topologySpreadConstraints"] == [soft, hard]
    assert other["affinity"]["podAntiAffinity"] == terms
