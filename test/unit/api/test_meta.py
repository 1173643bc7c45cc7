"""api/meta.py: keys, REST paths, owners and conditions."""

import msgspec
import pytest

from jobsetpy.api import meta
from jobsetpy.api.batch import Job, JobStatus
from jobsetpy.api.core import Node, Pod
from jobsetpy.api.jobset import ChildPod, JobSet


@pytest.mark.parametrize(
    ("cls", "arguments", "expected"),
    [
        (Pod, {}, "/api/v1/pods"),
        (Pod, {"namespace": ""}, "/api/v1/pods"),
        (Pod, {"namespace": "n"}, "/api/v1/namespaces/n/pods"),
        (Pod, {"namespace": "n", "name": "p"}, "/api/v1/namespaces/n/pods/p"),
        (Node, {"namespace": "n", "name": "x"}, "/api/v1/nodes/x"),
        (Job, {"namespace": "n"}, "/apis/batch/v1/namespaces/n/jobs"),
        (
            JobSet,
            {"namespace": "n", "name": "j", "subresource": "status"},
            "/apis/jobset.x-k8s.io/v1alpha2/namespaces/n/jobsets/j/status",
        ),
    ],
)
def test_rest_paths(cls, arguments, expected):
    """Paths follow the API's scheme for core and grouped, namespaced and cluster-scoped kinds."""
    assert cls.RESOURCE.path(**arguments) == expected


def test_every_kind_and_slice_is_a_kube_object():
    """Complete and partial models of kinds satisfy the framework's protocol."""
    for obj in (JobSet(), Job(), ChildPod()):
        assert isinstance(obj, meta.KubeObject)


def test_address_of_a_pod_has_the_name_that_the_api_server_gives_it():
    """It is ``podIP``, which is not the camel case of a Python name."""
    data = b'{"status": {"podIP": "10.0.0.1"}}'

    assert msgspec.json.decode(data, type=Pod).status.pod_ip == "10.0.0.1"


def test_the_controller_is_the_owner_with_controller_true():
    """Owner references with controller false or absent do not count."""
    job = meta.OwnerReference(kind="Job", name="j", uid="2", controller=True)
    others = (
        meta.OwnerReference(kind="A", uid="0"),
        meta.OwnerReference(kind="B", uid="1", controller=False),
    )

    assert meta.ObjectMeta(owner_references=others).controller is None
    assert meta.ObjectMeta(owner_references=(*others, job)).controller == job


def test_owner_reference_to_an_object():
    """The reference names a controller that blocks its own deletion."""
    owner = JobSet(metadata=meta.ObjectMeta(name="j", namespace="n", uid="u"))

    assert meta.owner_reference_to(owner) == {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "j",
        "uid": "u",
        "controller": True,
        "blockOwnerDeletion": True,
    }


@pytest.mark.parametrize(
    ("status", "found"), [("True", True), ("False", False), ("Unknown", False), ("", False)]
)
def test_a_condition_holds_only_if_true(status, found):
    """Only a condition of the given type with status True counts."""
    condition = meta.Condition(type="Ready", status=status)
    other = meta.Condition(type="Other", status="True")

    assert meta.condition_true((other, condition), "Ready") == (condition if found else None)


def test_a_job_is_finished_by_complete_or_failed():
    """Only Failed is a failure."""
    failed = meta.Condition(type="Failed", status="True")
    complete = meta.Condition(type="Complete", status="True")
    suspended = meta.Condition(type="Suspended", status="True")

    assert JobStatus(conditions=(suspended,)).finished is None
    assert JobStatus(conditions=(suspended, failed)).finished == failed
    assert JobStatus(conditions=(failed,)).failed_condition == failed
    assert JobStatus(conditions=(complete,)).finished == complete
    assert JobStatus(conditions=(complete,)).failed_condition is None


def test_child_pods_share_repeated_texts():
    """Texts that are equal in all pods of a Job are stored once."""
    text = b"""{"metadata": {"namespace": "some-namespace", "labels":
        {"jobset.sigs.k8s.io/jobset-name": "some-jobset"}}, "spec": {"nodeName": "some-node"}}"""
    first, second = (msgspec.json.decode(text, type=ChildPod) for _ in range(2))

    assert first == second
    assert first.metadata.namespace is second.metadata.namespace
    assert first.metadata.labels.jobset_name is second.metadata.labels.jobset_name
    assert first.spec.node_name is second.spec.node_name


def test_child_pods_know_their_job():
    """The Job's UID is that of the controller owner, or empty."""
    text = b"""{"metadata": {"ownerReferences": [
        {"kind": "X", "uid": "1"}, {"kind": "Job", "uid": "2", "controller": true}]}}"""

    assert msgspec.json.decode(text, type=ChildPod).metadata.controller_uid == "2"
    assert ChildPod().metadata.controller_uid == ""
