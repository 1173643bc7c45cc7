"""Bodies of child Jobs: labels, annotations, indexes, placement."""

from __future__ import annotations

import hashlib
from typing import ClassVar

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.jobs.child_jobs import blueprints
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job

TOPOLOGY = keys.EXCLUSIVE_TOPOLOGY_ANNOTATION
SELECTOR = keys.NODE_SELECTOR_ANNOTATION


def bodies(data, features=None):
    """All Jobs of a JobSet by name."""
    jobset = decoded(JobSet, data)
    return {
        name: plan.body(index)
        for plan in blueprints(jobset, features or Features()).values()
        for index, name in plan.names()
    }


def everywhere(body):
    """Labels and annotations of the Job and of its pod template."""
    pod = body["spec"]["template"]["metadata"]
    meta = body["metadata"]
    return [meta["labels"], meta["annotations"], pod["labels"], pod["annotations"]]


def test_generated_keys():
    """Every generated key is a label and an annotation of the Job and of its pods."""
    data = jobset_json(
        replicated_job("a", 2, group="g1"),
        replicated_job("b", 3, group="g2"),
        replicated_job("c", 4, group="g1"),
        status={"restarts": 7},
        coordinator={"replicatedJob": "a", "jobIndex": 1, "podIndex": 2},
    )
    expected = {
        keys.JOBSET_NAME: "test-js",
        keys.JOBSET_UID: "js-uid",
        keys.REPLICATED_JOB_NAME: "c",
        keys.RESTART_ATTEMPT: "7",
        keys.JOB_RESTART_ATTEMPT: "0",
        keys.REPLICATED_JOB_REPLICAS: "4",
        keys.GLOBAL_REPLICAS: "9",
        keys.JOB_INDEX: "3",
        keys.JOB_KEY: hashlib.sha1(b"default/test-js-c-3").hexdigest(),
        keys.JOB_GLOBAL_INDEX: "8",
        keys.GROUP_NAME: "g1",
        keys.GROUP_REPLICAS: "6",
        keys.JOB_GROUP_INDEX: "5",
        keys.COORDINATOR: "test-js-a-1-2.test-js",
    }

    assert [expected] * 4 == everywhere(bodies(data)["test-js-c-3"])


def test_identity_and_owner():
    """A Job has its name, namespace and the JobSet as controller."""
    body = bodies(jobset_json())["test-js-replicated-job-b-1"]

    assert (body["apiVersion"], body["kind"]) == ("batch/v1", "Job")
    assert (
        body["metadata"]["name"],
        body["metadata"]["namespace"],
    ) == ("test-js-replicated-job-b-1", "default")
    assert body["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "name": "test-js",
            "uid": "js-uid",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_user_metadata_is_kept_and_overruled():
    """Labels and annotations of the templates stay, except under the controller's keys."""
    item = replicated_job(
        "a",
        metadata={
            "labels": {"job": "l", keys.JOB_INDEX: "99"},
            "annotations": {"job": "a"},
            "name": "ignored",
        },
        pod_metadata={
            "labels": {"pod": "l"},
            "annotations": {"pod": "a", keys.JOBSET_NAME: "other"},
            "finalizers": ["kept"],
        },
    )
    body = bodies(jobset_json(item))["test-js-a-0"]
    job_labels, job_annotations, pod_labels, pod_annotations = everywhere(body)

    assert (
        job_labels["job"],
        job_annotations["job"],
        pod_labels["pod"],
        pod_annotations["pod"],
    ) == ("l", "a", "l", "a")
    assert (job_labels[keys.JOB_INDEX], pod_annotations[keys.JOBSET_NAME]) == ("0", "test-js")
    assert "pod" not in job_labels
    assert body["spec"]["template"]["metadata"]["finalizers"] == ["kept"]
    assert body["metadata"]["name"] == "test-js-a-0"


def test_unknown_fields_of_the_template_are_passed_on():
    """What this controller does not know reaches the Job unchanged."""
    item = replicated_job(
        "a", job_spec={"newField": {"x": [1]}}, pod_spec={"schedulingGroup": {"podGroupName": "g"}}
    )
    spec = bodies(jobset_json(item))["test-js-a-0"]["spec"]

    assert spec["newField"] == {"x": [1]}
    assert spec["template"]["spec"]["schedulingGroup"] == {"podGroupName": "g"}


def test_no_environment_is_injected():
    """Workers read what they need from labels and annotations."""
    body = bodies(jobset_json())["test-js-replicated-job-a-0"]

    assert (body["spec"]["template"]["spec"]["containers"]) == [
        {"name": "worker", "image": "worker:1"}
    ]


@pytest.mark.parametrize("suspend", [None, False, True])
def test_suspend_is_always_explicit(suspend):
    """The Job carries the JobSet's suspend state, whatever its template says."""
    item = replicated_job("a", job_spec={"suspend": suspend is not True})
    spec = {} if suspend is None else {"suspend": suspend}
    body = bodies(jobset_json(item, **spec))["test-js-a-0"]

    assert (suspend is True) is body["spec"]["suspend"]


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ({"enableDNSHostnames": True}, "test-js"),
        ({"enableDNSHostnames": True, "subdomain": "own"}, "own"),
        ({"enableDNSHostnames": False, "subdomain": "own"}, "users"),
    ],
)
def test_subdomain(network, expected):
    """DNS names set the pods' subdomain; without them the template's stays."""
    item = replicated_job("a", pod_spec={"subdomain": "users"})
    body = bodies(jobset_json(item, network=network))["test-js-a-0"]

    assert expected == body["spec"]["template"]["spec"]["subdomain"]


def test_the_coordinators_address_uses_the_subdomain():
    """The address is a name that the headless Service resolves."""
    data = jobset_json(
        network={"enableDNSHostnames": True, "subdomain": "net"},
        coordinator={"replicatedJob": "replicated-job-a"},
    )

    labels = bodies(data)["test-js-replicated-job-b-2"]["metadata"]["labels"]
    assert labels[keys.COORDINATOR] == "test-js-replicated-job-a-0-0.net"


def test_without_the_gate_no_own_attempt():
    """The label of a Job's own restarts belongs to the gate RestartJob."""
    body = bodies(jobset_json(), Features(restart_job=False))["test-js-replicated-job-a-0"]

    assert all(keys.JOB_RESTART_ATTEMPT not in each for each in everywhere(body))


def test_own_attempts_follow_the_status():
    """Each index carries the number of its own restarts."""
    counters = [{"name": "replicated-job-b", "jobRestarts": [0, 4, 0]}]
    made = bodies(jobset_json(status={"replicatedJobsStatus": counters}))
    attempts = [
        made[f"test-js-replicated-job-b-{i}"]["metadata"]["labels"][keys.JOB_RESTART_ATTEMPT]
        for i in range(3)
    ]

    assert attempts == ["0", "4", "0"]


class TestPlacement:
    def placement(self, jobset=None, template=None):
        """Annotations of placement on Job and pod, the node selector and tolerations."""
        item = replicated_job("a", metadata={"annotations": template} if template else None)
        body = bodies(jobset_json(item, annotations=jobset))["test-js-a-0"]
        pod = body["spec"]["template"]
        chosen = [
            {k: v for k, v in meta["annotations"].items() if k in {TOPOLOGY, SELECTOR}}
            for meta in (body["metadata"], pod["metadata"])
        ]
        labels = body["metadata"]["labels"].keys() | pod["metadata"]["labels"].keys()
        assert not labels & {TOPOLOGY, SELECTOR}
        return (*chosen, pod["spec"].get("nodeSelector"), pod["spec"].get("tolerations"))

    RESERVED: ClassVar = {keys.NAMESPACED_JOB_LABEL: "default_test-js-a-0"}
    TOLERATED: ClassVar = [
        {"key": keys.NO_SCHEDULE_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    ]

    def test_none(self):
        """Without annotations nothing is placed."""
        assert self.placement() == ({}, {}, None, None)

    def test_per_jobset(self):
        """The JobSet's annotation reaches Jobs and pods."""
        wanted = {TOPOLOGY: "rack"}

        assert (wanted, wanted, None, None) == self.placement(jobset=wanted)

    def test_per_replicated_job(self):
        """The ReplicatedJob's annotation wins over the JobSet's."""
        wanted = {TOPOLOGY: "zone"}

        assert (wanted, wanted, None, None) == self.placement({TOPOLOGY: "rack"}, wanted)

    @pytest.mark.parametrize("level", ["jobset", "template"])
    def test_node_selector_strategy(self, level):
        """Both annotations at one level reserve nodes for the Job."""
        both = {TOPOLOGY: "rack", SELECTOR: "true"}

        assert (both, both, self.RESERVED, self.TOLERATED) == self.placement(**{level: both})

    def test_node_selector_alone(self):
        """The node-selector annotation means nothing by itself."""
        assert self.placement(jobset={SELECTOR: "true"}) == ({}, {}, None, None)

    def test_users_selectors_and_tolerations_are_kept(self):
        """What the strategy needs is added to what the template has."""
        item = replicated_job(
            "a",
            2,
            metadata={"annotations": {TOPOLOGY: "rack", SELECTOR: "true"}},
            pod_spec={"nodeSelector": {"x": "y"}, "tolerations": [{"key": "own"}]},
        )
        made = bodies(jobset_json(item))
        pods = [made[f"test-js-a-{i}"]["spec"]["template"]["spec"] for i in range(2)]

        assert [
            {"x": "y", keys.NAMESPACED_JOB_LABEL: f"default_test-js-a-{i}"} for i in range(2)
        ] == [pod["nodeSelector"] for pod in pods]
        assert [[{"key": "own"}, *self.TOLERATED]] * 2 == [pod["tolerations"] for pod in pods]


def test_bodies_share_what_they_have_in_common():
    """The pod spec of a thousand Jobs exists once."""
    made = list(bodies(jobset_json(replicated_job("a", 3))).values())

    assert len({id(body["spec"]["template"]["spec"]) for body in made}) == 1
    assert len({id(body["metadata"]["labels"]) for body in made}) == 3
