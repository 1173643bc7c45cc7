"""Counters of ReplicatedJobs, buckets of Jobs, and small rules of the jobs reconciler."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.jobs.counters import is_ready, replicated_job_statuses
from jobsetpy.reconcilers.jobs.surroundings import service_body
from jobsetpy.reconcilers.rules.buckets import sort_jobs
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.membership import parse_count
from support.jobsets import decoded, jobset_json, replicated_job

JOBSET = decoded(JobSet, jobset_json(replicated_job("a", 2), status={"restarts": 1}))


def job(status=None, *, spec=None, labels=None, annotations=None, name="test-js-a-0"):
    """Return a child Job of the current attempt."""
    own = {keys.RESTART_ATTEMPT: "1", keys.REPLICATED_JOB_NAME: "a", keys.JOB_INDEX: "0"}
    present = {k: v for k, v in (own | (labels or {})).items() if v is not None}
    metadata = {"name": name, "labels": present, "annotations": annotations or {}}
    spec = {"parallelism": 1, **(spec or {})}
    return decoded(Job, {"metadata": metadata, "spec": spec, "status": status or {}})


def finished(kind, status="True"):
    """Return a status with one condition."""
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
def test_job_is_in_one_bucket(case):
    """By its labels and conditions."""
    child, expected = BUCKETS[case]
    buckets = sort_jobs(JOBSET, [child], Features())
    kinds = ("active", "successful", "failed", "previous", "invalid")

    assert [kind for kind in kinds if getattr(buckets, kind)] == [expected]
    assert buckets.names == frozenset({"test-js-a-0"})


READY = {
    "all ready": ({"ready": 2}, {"parallelism": 2}, True),
    "partly ready": ({"ready": 1}, {"parallelism": 2}, False),
    "ready and succeeded": ({"ready": 1, "succeeded": 1}, {"parallelism": 2}, True),
    "fewer completions": ({"ready": 1}, {"parallelism": 2, "completions": 1}, True),
    "more completions": ({"ready": 1}, {"parallelism": 1, "completions": 3}, True),
    "no pods yet": ({}, {"parallelism": 1}, False),
    "parallelism of zero": ({}, {"parallelism": 0}, True),
}


@pytest.mark.parametrize("case", READY)
def test_job_is_ready_when_its_pods_are_ready_or_succeeded(case):
    """As many pods as it may have at once."""
    status, spec, expected = READY[case]

    assert is_ready(job(status, spec=spec)) is expected


@pytest.mark.parametrize(
    ("ready", "succeeded", "expected"),
    [(1, 0, False), (2, 0, True), (3, 0, True), (1, 1, True), (0, 1, False)],
)
def test_job_with_spares_is_ready_when_its_pods_can_fill_the_seats(ready, succeeded, expected):
    """Parked pods of a Job with two seats and a spare count, as they could take a seat."""
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
    "about to fail, pods still end": (
        [job({**finished("FailureTarget"), "terminating": 1})],
        {"active": 1},
    ),
    "suspended": ([job(spec={"suspend": True})], {"suspended": 1}),
    "previous jobs count nowhere": ([job({"active": 1}, labels={keys.RESTART_ATTEMPT: "0"})], {}),
    "unknown ReplicatedJobs count nowhere": (
        [job({"active": 1}, labels={keys.REPLICATED_JOB_NAME: "x"})],
        {},
    ),
}


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("case", COUNTERS)
def test_counters_are_computed_from_the_jobs(case, gate):
    """Every ReplicatedJob has an entry."""
    jobs, expected = COUNTERS[case]
    features = Features(restart_job=gate)
    (status,) = replicated_job_statuses(JOBSET, sort_jobs(JOBSET, jobs, features), features)
    fields = ("ready", "succeeded", "failed", "active", "suspended")

    assert status.name == "a"
    assert {name: n for name in fields if (n := getattr(status, name))} == expected


def test_restart_arrays_are_kept_only_with_the_feature_gate():
    """They count restarts of single Jobs."""
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
def test_count_is_plain_decimal_digits(text, expected):
    """Other text is no count."""
    assert parse_count(text) == expected


@pytest.mark.parametrize(
    ("network", "name", "publish"),
    [
        ({"enableDNSHostnames": True}, "test-js", True),
        ({"enableDNSHostnames": True, "publishNotReadyAddresses": True}, "test-js", True),
        ({"enableDNSHostnames": True, "publishNotReadyAddresses": False}, "test-js", False),
        ({"enableDNSHostnames": True, "subdomain": "sub"}, "sub", True),
    ],
)
def test_service_is_headless_and_selects_the_pods_of_its_jobset(network, name, publish):
    """It has the name of the subdomain and neither ports nor labels."""
    jobset = decoded(JobSet, jobset_json(network=network))
    body = service_body(jobset)

    assert body["metadata"].keys() == {"name", "namespace", "ownerReferences"}
    assert body["metadata"]["name"] == name
    assert body["spec"] == {
        "clusterIP": "None",
        "selector": {keys.JOBSET_NAME: "test-js"},
        "publishNotReadyAddresses": publish,
    }
