"""Rules of startup groups: targets, attempts, objects, resumption and reports."""

from __future__ import annotations

import copy

import pytest

from jobsetpy.api import keys
from jobsetpy.api.group_signal import (
    Progress,
    config_map_name,
    lifted_attempt,
    progress_of,
    started_value,
    timed_out_message,
    waiting_value,
)
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.reconcilers.startup_groups import release
from jobsetpy.reconcilers.startup_groups import spec as groups
from support.jobsets import ModelCluster, decoded, jobset_json, replicated_job
from support.model_kit import begin, rule, settle

ATTEMPT = keys.GROUP_ATTEMPT
NAME = "test-js-group-scheduling"


def jobset(*jobs, generation=1, status=None, **config):
    """Return a JobSet with a startup group."""
    body = jobset_json(*jobs, status=status, groupSchedulingConfig=config)
    body["metadata"]["generation"] = generation
    return body


def begun(*jobs, **fields):
    """Return a cluster whose JobSet with a startup group has its Jobs."""
    cluster = ModelCluster(jobset(*jobs, **fields))
    cluster.reconcile()
    return cluster


def attempts(cluster):
    """Return the group's attempt of each Job by the Job's name."""
    return {name: job["metadata"]["annotations"][ATTEMPT] for name, job in cluster.jobs.items()}


@pytest.mark.parametrize(
    ("targets", "expected"), [((), {"a", "b"}), (("a",), {"a"}), (("b", "a"), {"a", "b"})]
)
def test_all_replicated_jobs_are_targets_by_default(targets, expected):
    """Without names in the configuration."""
    body = jobset(replicated_job("a"), replicated_job("b"), targetReplicatedJobs=list(targets))

    assert {item.name for item in groups.targets(decoded(JobSet, body))} == expected


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({"parallelism": 3, "completions": 3}, 3),
        ({"parallelism": 5, "completions": 3}, 3),
        ({"parallelism": 2, "completions": 9}, 2),
        ({"parallelism": 4, "completions": None}, 4),
        ({"parallelism": None, "completions": 4}, 1),
        ({"parallelism": None, "completions": None}, 1),
        ({"parallelism": 0, "completions": 4}, 0),
    ],
)
def test_size_of_a_group_counts_pods_that_exist_at_the_same_time(spec, pods):
    """All Jobs of the targets count, and no other Jobs."""
    jobs = (replicated_job("a", 3, job_spec=spec), replicated_job("b", 7))
    body = jobset(*jobs, targetReplicatedJobs=["a"])

    assert groups.startup_group_size(decoded(JobSet, body)) == 3 * pods


def test_only_targets_are_annotated():
    """Jobs and pods of targets; a template cannot set these annotations."""
    template = {"annotations": {ATTEMPT: "99"}}
    counters = {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    items = [{"name": "a", **counters, "jobRestarts": [0, 3]}, {"name": "b", **counters}]
    cluster = begun(
        replicated_job("a", 2, parallelism=2, metadata=template, pod_metadata=template),
        replicated_job("b"),
        generation=4,
        status={"restarts": 2, "replicatedJobsStatus": items},
        timeoutAfterSeconds=60,
        targetReplicatedJobs=["a"],
    )

    for name in ("test-js-a-0", "test-js-a-1"):
        job = cluster.jobs[name]
        for meta in (job["metadata"], job["spec"]["template"]["metadata"]):
            notes = meta["annotations"]
            found = {key: notes[key] for key in groups.ANNOTATIONS if key in notes}
            assert found == {ATTEMPT: "9", keys.GROUP_SIZE: "4", keys.GROUP_TIMEOUT: "60"}
    other = cluster.jobs["test-js-b-0"]
    assert not groups.ANNOTATIONS & other["metadata"]["annotations"].keys()


def test_jobsets_without_a_group_are_unchanged():
    """They have neither annotations nor objects of a group."""
    cluster = begin()

    assert not cluster.group_objects
    for job in cluster.jobs.values():
        assert not groups.ANNOTATIONS & job["metadata"]["annotations"].keys()


@pytest.mark.parametrize("rbac", [False, True])
def test_config_map_is_created_with_the_jobs(rbac):
    """It is empty, owned by the JobSet, and recreated when it is deleted; Roles are optional."""
    account = {"serviceAccountName": "trainer"}
    body = jobset(replicated_job("a", pod_spec=account), replicated_job("b"))
    cluster = ModelCluster(body)
    cluster.group_rbac = rbac
    cluster.reconcile()

    kinds = {"ConfigMap", "Role", "RoleBinding"} if rbac else {"ConfigMap"}
    assert set(cluster.group_objects) == {(kind, NAME) for kind in kinds}
    made = cluster.group_objects["ConfigMap", NAME]
    assert "data" not in made
    assert made["metadata"]["ownerReferences"][0]["uid"] == "js-uid"
    assert made["metadata"]["labels"] == {keys.JOBSET_NAME: "test-js"}
    if rbac:
        (rule,) = cluster.group_objects["Role", NAME]["rules"]
        assert rule["resourceNames"] == [NAME]
        names = [s["name"] for s in cluster.group_objects["RoleBinding", NAME]["subjects"]]
        assert names == ["default", "trainer"]
    cluster.group_objects.clear()
    assert not cluster.plan().empty
    cluster.reconcile()
    assert ("ConfigMap", NAME) in cluster.group_objects


def test_config_map_of_a_finished_jobset_is_not_recreated():
    """No pod waits for it."""
    cluster = begun(replicated_job("a"))
    cluster.complete("test-js-a-0")
    cluster.reconcile()
    cluster.group_objects.clear()

    assert cluster.plan().empty


def test_resumption_is_another_attempt():
    """The patch that resumes a Job sets the attempt of Job and pods."""
    cluster = begun(replicated_job("a"))
    before = cluster.job("test-js-a-0").metadata.annotations[ATTEMPT]
    for suspend, generation in ((True, 2), (False, 3)):
        cluster.change_spec(suspend=suspend)
        cluster.object["metadata"]["generation"] = generation
        cluster.reconcile()

    job = cluster.jobs["test-js-a-0"]
    assert before == "1"
    assert job["spec"]["suspend"] is False
    assert job["metadata"]["annotations"][ATTEMPT] == "3"
    assert job["spec"]["template"]["metadata"]["annotations"][ATTEMPT] == "3"


def test_restart_is_another_attempt():
    """A recreated group waits for its own signal."""
    cluster = ModelCluster(jobset(replicated_job("a"), replicated_job("b")))
    cluster.change_spec(failurePolicy={"maxRestarts": 3})
    cluster.reconcile()
    cluster.fail("test-js-a-0")
    settle(cluster)

    assert attempts(cluster) == {"test-js-a-0": "2", "test-js-b-0": "2"}


def test_restart_of_one_job_is_another_attempt_of_that_job():
    """Other Jobs keep running with their attempt."""
    cluster = ModelCluster(jobset(replicated_job("a", 2)))
    cluster.change_spec(failurePolicy={"maxRestarts": 3, "rules": [rule("RestartJob")]})
    cluster.reconcile()
    cluster.fail("test-js-a-1")
    settle(cluster)

    assert attempts(cluster) == {"test-js-a-0": "1", "test-js-a-1": "2"}


@pytest.mark.parametrize(
    ("value", "attempt"),
    [
        (started_value("u", 7), 7),
        ("u 7", 7),
        (started_value("other", 7), 0),
        (None, 0),
        ("", 0),
        ("u", 0),
        ("u seven", 0),
        ("u -1", 0),
        ("u 7 8", 0),
        ("u " + 40 * "9", 0),
    ],
)
def test_value_lifts_attempts_of_its_jobset_up_to_the_one_it_names(value, attempt):
    """Other values lift none."""
    assert lifted_attempt(value, "u") == attempt


def test_progress_belongs_to_its_attempt():
    """Progress of another attempt or JobSet is ignored."""
    progress = Progress(7, 8, "2026-01-01T00:00:00Z")
    value = waiting_value("u", 3, progress)

    assert progress_of(value, "u", 3) == progress
    assert progress_of(value, "u", 4) is None
    assert progress_of(value, "other", 3) is None
    assert progress_of("u 3 7", "u", 3) is None
    assert "7 of 8 pods" in timed_out_message(5, progress, "8")
    assert "fewer than 8 pods" in timed_out_message(5, None, "8")
    assert config_map_name("test-js") == NAME


def test_number_of_progress_reports_is_limited():
    """For any timeout."""
    for timeout_s in (1, 5, 60, 3600):
        moments, at = [], 0.0
        while (later := release.next_progress(at, timeout_s)) is not None:
            assert later > at
            moments.append(later)
            at = later
        assert len(moments) <= 9
        if timeout_s >= 5:
            assert any(timeout_s - 3 <= at < timeout_s for at in moments)
    assert release.next_progress(0.0, None) is None


@pytest.mark.parametrize(("elapsed", "at"), [(0, 60), (59, 60), (60, 120), (130, 240), (250, 480)])
def test_pauses_between_reports_of_missing_pods_double(elapsed, at):
    """They begin with a minute."""
    assert release.next_complaint(elapsed) == at


def pod(job, index, *, node="", started=False, phase="Pending", attempt="1", of="test-js"):
    """Return a pod of a Job."""
    meta = {
        "name": f"{job['metadata']['name']}-{index}-x",
        "namespace": "default",
        "uid": f"{job['metadata']['name']}-{index}",
        "labels": {keys.JOBSET_NAME: of},
        "annotations": {ATTEMPT: attempt, keys.COMPLETION_INDEX_ANNOTATION: str(index)},
        "ownerReferences": [{"kind": "Job", "uid": job["metadata"]["uid"], "controller": True}],
    }
    status = {"phase": phase}
    if started:
        status["initContainerStatuses"] = [
            {"name": keys.GROUP_INIT_CONTAINER, "state": {"running": {}}}
        ]
    return decoded(ChildPod, {"metadata": meta, "spec": {"nodeName": node}, "status": status})


def test_missing_pods_are_reported_with_reasons():
    """In the order of the spec."""
    cluster = begun(replicated_job("a", 2, parallelism=3), replicated_job("b"))
    first, second = cluster.jobs["test-js-a-0"], cluster.jobs["test-js-a-1"]
    del cluster.jobs["test-js-b-0"]
    pods = [
        pod(first, 0, node="n", started=True),
        pod(first, 1, node="n"),
        pod(first, 2),
        pod(second, 0, phase="Running", node="n"),
        pod(second, 1, started=True, attempt="0"),
        pod(second, 2, started=True),
    ]
    jobs = [cluster.job(name) for name in cluster.jobs]
    missing = release.missing_pods(cluster.jobset, jobs, pods)

    without = "it runs without the barrier: was the webhook for pods reached when it was made?"
    assert list(map(str, missing)) == [
        "test-js-a-0-1-x (not started on node n)",
        "test-js-a-0-2-x (not scheduled)",
        f"test-js-a-1-0-x ({without})",
        "test-js-a-1-1 (its pod does not exist)",
        "test-js-b-0 (its job does not exist)",
    ]
    event = release.complaint(2, 20, missing, 60.4)
    assert event.message.startswith(
        "2 of 20 pods have started after 60 s; missing: test-js-a-0-1-x"
    )
    assert event.message.endswith(" and 13 more")


def test_jobs_created_before_the_group_have_no_missing_pods():
    """Their pods run without the barrier."""
    cluster = begun(replicated_job("a", 2, parallelism=3), replicated_job("b"))
    del cluster.jobs["test-js-a-1"]["metadata"]["annotations"][ATTEMPT]
    jobs = [cluster.job(name) for name in cluster.jobs]

    assert release.pods_to_start(cluster.jobset, jobs) == 4
    missing = map(str, release.missing_pods(cluster.jobset, jobs, []))
    assert all("test-js-a-1" not in each for each in missing)


@pytest.mark.parametrize(
    ("fields", "status", "present", "expected"),
    [
        ({}, {}, 3, []),
        ({}, {}, 2, ["test-js-a-0-2 (its pod does not exist)"]),
        # The counters do not say which indexes have succeeded and need no pod.
        ({}, {"succeeded": 1}, 1, []),
        ({"completionMode": "NonIndexed"}, {}, 3, []),
        ({"completionMode": "NonIndexed"}, {}, 2, ["test-js-a-0 (1 pod does not exist)"]),
        ({"completionMode": "NonIndexed"}, {}, 1, ["test-js-a-0 (2 pods do not exist)"]),
        ({"completionMode": "NonIndexed"}, {"succeeded": 1}, 2, []),
        ({"completionMode": "NonIndexed", "completions": None}, {"succeeded": 1}, 0, []),
        ({}, {"conditions": [{"type": "Complete", "status": "True"}]}, 0, []),
        ({}, {"conditions": [{"type": "Failed", "status": "True"}]}, 0, []),
    ],
)
def test_pods_that_do_not_exist_are_reported(fields, status, present, expected):
    """By index if the Job has indexes; not if they have succeeded or their Job has finished."""
    item = replicated_job("a", parallelism=3, job_spec={"completionMode": "Indexed", **fields})
    cluster = begun(item)
    cluster.jobs["test-js-a-0"]["status"] = status
    job = cluster.jobs["test-js-a-0"]
    pods = [pod(job, index, node="n", started=True) for index in range(present)]
    missing = release.missing_pods(cluster.jobset, [cluster.job("test-js-a-0")], pods)

    assert list(map(str, missing)) == expected


def test_pods_of_other_jobsets_are_ignored():
    """Neither are they missing, nor do they replace a missing pod."""
    cluster = begun(replicated_job("a"))
    body = copy.deepcopy(cluster.jobs["test-js-a-0"])
    body["metadata"] |= {"name": "other-a-0", "uid": "other"}
    others = [pod(body, 0, of="other"), pod(body, 1, of="other", started=True)]
    missing = release.missing_pods(cluster.jobset, [cluster.job("test-js-a-0")], others)

    assert list(map(str, missing)) == ["test-js-a-0-0 (its pod does not exist)"]
