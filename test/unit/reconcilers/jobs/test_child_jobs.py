"""Bodies of child Jobs: labels, annotations, indexes and placement."""

from __future__ import annotations

import hashlib
from typing import ClassVar

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules.features import Features
from support.jobsets import decoded, jobset_json, replicated_job
from support.model_kit import builders

TOPOLOGY = keys.EXCLUSIVE_TOPOLOGY_ANNOTATION
SELECTOR = keys.NODE_SELECTOR_ANNOTATION
RACK, ZONE, BOTH = {TOPOLOGY: "rack"}, {TOPOLOGY: "zone"}, {TOPOLOGY: "rack", SELECTOR: "true"}


def bodies(data, features=None):
    """Return all Jobs of a JobSet by name."""
    jobset = decoded(JobSet, data)
    return {
        plan.name(index): plan.body(index)
        for plan in builders(jobset, features)
        for index in range(plan.replicated.replicas)
    }


def metadata_of(body):
    """Return labels and annotations of a Job and of its pod template."""
    pod = body["spec"]["template"]["metadata"]
    meta = body["metadata"]
    return [meta["labels"], meta["annotations"], pod["labels"], pod["annotations"]]


def test_generated_keys_are_labels_and_annotations_of_job_and_pods():
    """All of them are set everywhere."""
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

    assert metadata_of(bodies(data)["test-js-c-3"]) == [expected] * 4


def test_job_has_its_name_and_owner():
    """The JobSet is its controller."""
    body = bodies(jobset_json())["test-js-replicated-job-b-1"]

    assert (body["apiVersion"], body["kind"]) == ("batch/v1", "Job")
    metadata = body["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("test-js-replicated-job-b-1", "default")
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


def test_metadata_of_users_is_kept_except_for_the_controllers_keys():
    """Labels and annotations of Job and pod templates."""
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
    labels, annotations, pod_labels, pod_annotations = metadata_of(body)

    assert (labels["job"], annotations["job"]) == ("l", "a")
    assert (pod_labels["pod"], pod_annotations["pod"]) == ("l", "a")
    assert (labels[keys.JOB_INDEX], pod_annotations[keys.JOBSET_NAME]) == ("0", "test-js")
    assert "pod" not in labels
    assert body["spec"]["template"]["metadata"]["finalizers"] == ["kept"]
    assert body["metadata"]["name"] == "test-js-a-0"


def test_unknown_fields_of_the_template_are_passed_on():
    """Fields that this version does not know reach the Job unchanged."""
    item = replicated_job(
        "a", job_spec={"newField": {"x": [1]}}, pod_spec={"schedulingGroup": {"podGroupName": "g"}}
    )
    spec = bodies(jobset_json(item))["test-js-a-0"]["spec"]

    assert spec["newField"] == {"x": [1]}
    assert spec["template"]["spec"]["schedulingGroup"] == {"podGroupName": "g"}


@pytest.mark.parametrize("suspend", [None, False, True])
def test_job_has_the_suspend_state_of_its_jobset(suspend):
    """It is always explicit and overrides the template's."""
    item = replicated_job("a", job_spec={"suspend": suspend is not True})
    spec = {} if suspend is None else {"suspend": suspend}
    body = bodies(jobset_json(item, **spec))["test-js-a-0"]

    assert body["spec"]["suspend"] is (suspend is True)


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ({"enableDNSHostnames": True}, "test-js"),
        ({"enableDNSHostnames": True, "subdomain": "own"}, "own"),
        ({"enableDNSHostnames": False, "subdomain": "own"}, "users"),
    ],
)
def test_subdomain_of_pods_is_set_when_dns_names_are_enabled(network, expected):
    """Otherwise the template's subdomain stays."""
    item = replicated_job("a", pod_spec={"subdomain": "users"})
    body = bodies(jobset_json(item, network=network))["test-js-a-0"]

    assert body["spec"]["template"]["spec"]["subdomain"] == expected


def test_address_of_the_coordinator_has_the_subdomain():
    """The headless Service resolves this name."""
    data = jobset_json(
        network={"enableDNSHostnames": True, "subdomain": "net"},
        coordinator={"replicatedJob": "replicated-job-a"},
    )

    labels = bodies(data)["test-js-replicated-job-b-2"]["metadata"]["labels"]
    assert labels[keys.COORDINATOR] == "test-js-replicated-job-a-0-0.net"


def test_label_of_own_attempts_is_absent_when_the_gate_is_disabled():
    """The label of a Job's own restarts belongs to the feature gate RestartJob."""
    body = bodies(jobset_json(), Features(restart_job=False))["test-js-replicated-job-a-0"]

    assert all(keys.JOB_RESTART_ATTEMPT not in each for each in metadata_of(body))


def test_label_of_own_attempts_follows_the_status():
    """Each index carries the number of its own restarts."""
    counters = [{"name": "replicated-job-b", "jobRestarts": [0, 4, 0]}]
    made = bodies(jobset_json(status={"replicatedJobsStatus": counters}))
    attempts = [
        made[f"test-js-replicated-job-b-{i}"]["metadata"]["labels"][keys.JOB_RESTART_ATTEMPT]
        for i in range(3)
    ]

    assert attempts == ["0", "4", "0"]


class TestPlacement:
    RESERVED: ClassVar = {keys.NAMESPACED_JOB_LABEL: "default_test-js-a-0"}
    TOLERATED: ClassVar = [
        {"key": keys.NO_SCHEDULE_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    ]

    @pytest.mark.parametrize(
        ("jobset", "template", "annotations", "reserved"),
        [
            pytest.param(None, None, {}, False, id="none"),
            pytest.param(RACK, None, RACK, False, id="of the JobSet"),
            pytest.param(RACK, ZONE, ZONE, False, id="of the ReplicatedJob, which wins"),
            pytest.param(BOTH, None, BOTH, True, id="node selectors for the JobSet"),
            pytest.param(None, BOTH, BOTH, True, id="node selectors for the ReplicatedJob"),
            pytest.param({SELECTOR: "true"}, None, {}, False, id="node selectors without topology"),
        ],
    )
    def test_annotations_set_the_placement(self, jobset, template, annotations, reserved):
        """They reach Job and pods; with node selectors, nodes are reserved for the Job."""
        item = replicated_job("a", metadata={"annotations": template} if template else None)
        body = bodies(jobset_json(item, annotations=jobset))["test-js-a-0"]
        pod = body["spec"]["template"]
        for meta in (body["metadata"], pod["metadata"]):
            found = {k: v for k, v in meta["annotations"].items() if k in {TOPOLOGY, SELECTOR}}
            assert found == annotations
            assert not meta["labels"].keys() & {TOPOLOGY, SELECTOR}
        assert pod["spec"].get("nodeSelector") == (self.RESERVED if reserved else None)
        assert pod["spec"].get("tolerations") == (self.TOLERATED if reserved else None)

    def test_selectors_and_tolerations_of_users_are_kept(self):
        """The strategy adds its own to those of the template."""
        item = replicated_job(
            "a",
            2,
            metadata={"annotations": {TOPOLOGY: "rack", SELECTOR: "true"}},
            pod_spec={"nodeSelector": {"x": "y"}, "tolerations": [{"key": "own"}]},
        )
        made = bodies(jobset_json(item))
        pods = [made[f"test-js-a-{i}"]["spec"]["template"]["spec"] for i in range(2)]

        assert [pod["nodeSelector"] for pod in pods] == [
            {"x": "y", keys.NAMESPACED_JOB_LABEL: f"default_test-js-a-{i}"} for i in range(2)
        ]
        assert [pod["tolerations"] for pod in pods] == [[{"key": "own"}, *self.TOLERATED]] * 2


def test_bodies_share_their_common_parts():
    """The pod spec of a thousand Jobs exists once in memory."""
    made = list(bodies(jobset_json(replicated_job("a", 3))).values())

    assert len({id(body["spec"]["template"]["spec"]) for body in made}) == 1
    assert len({id(body["metadata"]["labels"]) for body in made}) == 3
