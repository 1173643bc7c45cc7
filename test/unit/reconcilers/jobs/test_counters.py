"""Counters of ReplicatedJobs, buckets, and small rules around them."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.jobs.counters import is_ready, replicated_job_statuses
from jobsetpy.reconcilers.jobs.network import service_body
from jobsetpy.reconcilers.rules import names
from jobsetpy.reconcilers.rules.buckets import sort_jobs
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.membership import parse_count
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job

JOBSET = decoded(JobSet, jobset_json(replicated_job("a", 2), status={"restarts": 1}))


def job(status=None, *, spec=None, labels=None, annotations=None, name="test-js-a-0"):
    """A child Job of the current attempt."""
    own = {
        keys.RESTART_ATTEMPT: "1",
        keys.REPLICATED_JOB_NAME: "a",
        keys.JOB_INDEX: "0",
        **(labels or {}),
    }
    return decoded(
        Job,
        {
            "metadata": {
                "name": name,
                "labels": {k: v for k, v in own.items() if v is not None},
                "annotations": annotations or {},
            },
            "spec": {"parallelism": 1, **(spec or {})},
            "status": status or {},
        },
    )


def finished(kind, status="True"):
    """A status with one condition."""
    return {"conditions": [{"type": kind, "status": status}]}


BUCKETS = {
    "no condition": (job(), "active"),
    "complete": (job(finished("Complete")), "successful"),
    "failed": (job(finished("Failed")), "failed"),
    "failed is False": (job(finished("Failed", "False")), "active"),
    "suspended condition": (job(finished("Suspended")), "active"),
    "failure target": (job(finished("FailureTarget")), "active"),
    "success criteria met": (job(finished("SuccessCriteriaMet")), "active"),
    "earlier attempt": (job(labels={keys.RESTART_ATTEMPT: "0"}), "previous"),
    "earlier attempt, failed": (
        job(finished("Failed"), labels={keys.RESTART_ATTEMPT: "0"}),
        "previous",
    ),
    "later attempt than the cached status": (job(labels={keys.RESTART_ATTEMPT: "2"}), "active"),
    "no attempt": (job(labels={keys.RESTART_ATTEMPT: None}), "invalid"),
    "attempt is no number": (job(labels={keys.RESTART_ATTEMPT: "1_0"}), "invalid"),
    "unknown ReplicatedJob": (job(labels={keys.REPLICATED_JOB_NAME: "x"}), "invalid"),
    "no ReplicatedJob": (job(labels={keys.REPLICATED_JOB_NAME: None}), "invalid"),
    "no index": (job(labels={keys.JOB_INDEX: None}), "invalid"),
    "index beyond the replicas": (job(labels={keys.JOB_INDEX: "2"}), "invalid"),
    "own attempt is no number": (job(labels={keys.JOB_RESTART_ATTEMPT: "-1"}), "invalid"),
    "own attempt is current": (job(labels={keys.JOB_RESTART_ATTEMPT: "0"}), "active"),
}


@pytest.mark.parametrize("case", BUCKETS)
def test_buckets(case):
    """Each Job is in exactly one bucket."""
    child, expected = BUCKETS[case]
    buckets = sort_jobs(JOBSET, [child], Features())
    kinds = ("active", "successful", "failed", "previous", "invalid")

    assert [expected] == [kind for kind in kinds if getattr(buckets, kind)]
    assert frozenset({"test-js-a-0"}) == buckets.names


def test_without_the_gate_only_the_global_attempt_counts():
    """Labels of single restarts are not even read."""
    child = job(labels={keys.REPLICATED_JOB_NAME: None, keys.JOB_RESTART_ATTEMPT: "x"})

    assert (child,) == sort_jobs(JOBSET, [child], Features(restart_job=False)).active


READY = {
    "all ready": ({"ready": 2}, {"parallelism": 2}, True),
    "partly ready": ({"ready": 1}, {"parallelism": 2}, False),
    "ready and succeeded": ({"ready": 1, "succeeded": 1}, {"parallelism": 2}, True),
    "fewer completions": ({"ready": 1}, {"parallelism": 2, "completions": 1}, True),
    "more completions": ({"ready": 1}, {"parallelism": 1, "completions": 3}, True),
    "nothing yet": ({}, {"parallelism": 1}, False),
    "no pods wanted": ({}, {"parallelism": 0}, True),
}


@pytest.mark.parametrize("case", READY)
def test_ready(case):
    """A Job is ready when all pods it may have at once run ready or succeeded."""
    status, spec, expected = READY[case]

    assert expected is is_ready(job(status, spec=spec))


@pytest.mark.parametrize(
    ("ready", "succeeded", "expected"),
    [(1, 0, False), (2, 0, True), (3, 0, True), (1, 1, True), (0, 1, False)],
)
def test_job_with_spares_is_ready_when_its_pods_can_fill_the_seats(ready, succeeded, expected):
    """Two seats and a spare: parked pods count, as they could take a seat; missing ones do not."""
    own = job(
        {"ready": ready, "succeeded": succeeded},
        spec={"parallelism": 3, "completions": 3},
        annotations={keys.IN_PLACE_SPARES_ANNOTATION: "1"},
    )

    assert is_ready(own) is expected


COUNTERS = {
    "no jobs": ([], {}),
    "partially ready": ([job({"active": 1, "ready": 0})], {"active": 1}),
    "ready": ([job({"active": 1, "ready": 1})], {"active": 1, "ready": 1}),
    "succeeded": ([job(finished("Complete"))], {"succeeded": 1}),
    "failed": ([job(finished("Failed"))], {"failed": 1}),
    "suspended": ([job(spec={"suspend": True})], {"suspended": 1}),
    "previous jobs count nowhere": ([job({"active": 1}, labels={keys.RESTART_ATTEMPT: "0"})], {}),
    "unknown ReplicatedJobs count nowhere": (
        [job({"active": 1}, labels={keys.REPLICATED_JOB_NAME: "x"})],
        {},
    ),
}


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("case", COUNTERS)
def test_counters(case, gate):
    """Every ReplicatedJob has an entry, computed afresh."""
    jobs, expected = COUNTERS[case]
    features = Features(restart_job=gate)
    (status,) = replicated_job_statuses(JOBSET, sort_jobs(JOBSET, jobs, features), features)
    fields = ("ready", "succeeded", "failed", "active", "suspended")

    assert ("a", expected) == (
        status.name,
        {name: value for name in fields if (value := getattr(status, name))},
    )


def test_restart_arrays_are_carried_over_only_with_the_gate():
    """Without the gate RestartJob the arrays of single restarts go."""
    stored = {"name": "a", "jobRestarts": [1, 0], "jobRestartsCountTowardsMax": [1, 0]}
    jobset = decoded(
        JobSet, jobset_json(replicated_job("a", 2), status={"replicatedJobsStatus": [stored]})
    )
    kept = [
        replicated_job_statuses(jobset, sort_jobs(jobset, [], features), features)[0].job_restarts
        for features in (Features(), Features(restart_job=False))
    ]

    assert kept == [(1, 0), ()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("12", 12), (None, None), ("", None), ("-1", None), ("1.0", None), (" 1", None),
     ("٣", None), ("9" * 11, None), ("+1", None)],
)  # fmt: skip
def test_parse_count(text, expected):
    """A count is plain decimal digits."""
    assert expected == parse_count(text)


@pytest.mark.parametrize(
    ("network", "name", "publish"),
    [
        ({"enableDNSHostnames": True}, "test-js", True),
        ({"enableDNSHostnames": True, "publishNotReadyAddresses": True}, "test-js", True),
        ({"enableDNSHostnames": True, "publishNotReadyAddresses": False}, "test-js", False),
        ({"enableDNSHostnames": True, "subdomain": "sub"}, "sub", True),
    ],
)
def test_service(network, name, publish):
    """Headless, named as the subdomain, selecting the JobSet's pods, without ports or labels."""
    jobset = decoded(JobSet, jobset_json(network=network))
    body = service_body(jobset)

    assert {"name", "namespace", "ownerReferences"} == body["metadata"].keys()
    assert name == body["metadata"]["name"]
    assert {
        "clusterIP": "None",
        "selector": {keys.JOBSET_NAME: "test-js"},
        "publishNotReadyAddresses": publish,
    } == body["spec"]


def test_names():
    """Names are part of the API."""
    assert names.job_name("js", "rj", 3) == "js-rj-3"
    assert names.claim_name("js", "cache") == "cache-js"
    assert names.namespaced_job("ns", "js-rj-3") == "ns_js-rj-3"
    assert len(names.job_key("ns", "js-rj-3")) == 40


def test_feature_gates_by_name():
    """Gates keep their names; what is not mentioned is on."""
    assert Features() == Features.from_gates({"TLSOptions": True})
    assert Features(False, False, False) == Features.from_gates(
        {"RestartJob": False, "ElasticJobSet": False, "InPlaceRestart": False}
    )
