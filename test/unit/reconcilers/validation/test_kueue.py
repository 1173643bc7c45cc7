"""JobSets under Kueue: replicas of zero, and placement by both projects."""

import asyncio
import copy

import pytest

from jobsetpy.admission._handlers import JobSetHandlers
from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.validation.kueue import keep_zero_replicas
from jobsetpy.reconcilers.validation.update import validate_update
from jobsetpy.reconcilers.validation.warnings import warnings
from jobsetpy.serving.review import ReviewRequest
from jobsetpy.testing import FakeApiServer, json_patch

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
SLICES = "kueue.x-k8s.io/podset-slice-required-topology"
EXCLUSIVE = keys.EXCLUSIVE_TOPOLOGY_ANNOTATION


def job(name: str, replicas: int | None, pod_notes=None, notes=None) -> dict:
    """Return a ReplicatedJob with these annotations."""
    pod = {"metadata": {"annotations": pod_notes or {}}, "spec": {"containers": [{"name": "c"}]}}
    made = {
        "name": name,
        "template": {"metadata": {"annotations": notes or {}}, "spec": {"template": pod}},
    }
    return made if replicas is None else made | {"replicas": replicas}


def jobset(*jobs: dict, queue: bool = True, notes=None, suspend: bool = True) -> dict:
    """Return a suspended JobSet in a queue of Kueue, unless other arguments are given."""
    labels = {keys.KUEUE_QUEUE_LABEL: "q"} if queue else {}
    metadata = {"name": "js", "namespace": "ns", "labels": labels, "annotations": notes or {}}
    spec = {"suspend": suspend, "replicatedJobs": list(jobs)}
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return {**kind, "metadata": metadata, "spec": spec}


def updated(old: dict, new: dict):
    """Return the answer of the mutating webhook to an update."""
    handlers = JobSetHandlers(FakeApiServer().client())
    request = ReviewRequest(uid="u", operation="UPDATE", namespace="ns", object=new, old_object=old)
    return asyncio.run(handlers.mutate(request))


@pytest.mark.parametrize("replicas", [None, 1])
def test_zero_replicas_stay_when_kueue_drops_them(replicas):
    """The patch makes the update acceptable, and a warning says so."""
    old = jobset(job("a", 2), job("none", 0))
    new = jobset(job("a", 2), job("none", replicas), suspend=False)
    answer = updated(old, new)
    stored = json_patch(new, list(answer.patch))

    assert validate_update(old, stored) == []
    assert [each["replicas"] for each in stored["spec"]["replicatedJobs"]] == [2, 0]
    assert answer.warnings == [
        "spec.replicatedJobs[1].replicas: stays 0: it is immutable, and Kueue leaves a zero out"
    ]


def test_other_replicated_jobs_are_shared_when_zero_replicas_are_kept():
    """The object that the API server sent is neither copied nor changed."""
    old = jobset(job("a", 2), job("none", 0))
    new = jobset(job("a", 2), job("none", 1), suspend=False)
    sent = copy.deepcopy(new)
    kept, _, _ = keep_zero_replicas(new, old)

    assert kept["spec"]["replicatedJobs"][0] is new["spec"]["replicatedJobs"][0]
    assert kept["spec"]["replicatedJobs"][1] == job("none", 0)
    assert new == sent


@pytest.mark.parametrize(("queue", "replicas"), [(False, 1), (True, 3)])
def test_other_changes_of_replicas_are_refused(queue, replicas):
    """Without a queue, and to numbers other than the default."""
    old = jobset(job("a", 0), queue=queue)
    new = jobset(job("a", replicas), queue=queue)
    stored = json_patch(new, list(updated(old, new).patch))

    assert [each.field for each in validate_update(old, stored)] == ["spec.replicatedJobs"]


@pytest.mark.parametrize("name", [REQUIRED, SLICES])
@pytest.mark.parametrize("where", ["jobset", "job"])
def test_placement_by_kueue_and_by_us_causes_a_warning(name, where):
    """It names the annotation to remove and the one to use instead."""
    notes = {EXCLUSIVE: "cloud.test/rack"}
    own = notes if where == "job" else None
    obj = jobset(job("a", 2, {name: "block"}, own), notes=None if own else notes)
    (warning,) = [str(each) for each in warnings(obj, Features())]

    assert warning == (
        "spec.replicatedJobs[0].template.spec.template.metadata.annotations"
        f"[{name}]: Kueue chooses nodes without regard to the annotation {EXCLUSIVE}: pods of a Job "
        "to which it gives the domain of another Job stay pending; remove that annotation; for one "
        "domain per Job use Kueue's "
        "podset-slice-required-topology: cloud.test/rack, with podset-slice-size"
    )


def test_placement_by_one_of_both_causes_no_warning():
    """Each of them works alone."""
    assert warnings(jobset(job("a", 2, {REQUIRED: "block"})), Features()) == []
    assert warnings(jobset(job("a", 2), notes={EXCLUSIVE: "rack"}), Features()) == []
