"""Group scheduling: who takes part, attempts, what is made for a group, and its resumption."""

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
from jobsetpy.testing.jobsets import ModelCluster, decoded, jobset_json, replicated_job

ATTEMPT = keys.GROUP_ATTEMPT
NAME = "test-js-group-scheduling"


def jobset(*jobs, generation=1, status=None, **config):
    """A JobSet with a group."""
    body = jobset_json(*jobs, status=status, groupSchedulingConfig=config)
    body["metadata"]["generation"] = generation
    return body


@pytest.mark.parametrize(
    ("targets", "wanted"),
    [((), {"a", "b"}), (("a",), {"a"}), (("b", "a"), {"a", "b"})],
)
def test_targets(targets, wanted):
    """No target means all ReplicatedJobs."""
    made = decoded(JobSet, jobset(replicated_job("a"), replicated_job("b"),
                                  targetReplicatedJobs=list(targets)))  # fmt: skip

    assert wanted == {item.name for item in groups.targets(made)}


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
def test_startup_group_size(spec, pods):
    """Those that are there at the same time, of all Jobs of the targets."""
    made = decoded(JobSet, jobset(replicated_job("a", 3, job_spec=spec), replicated_job("b", 7),
                                  targetReplicatedJobs=["a"]))  # fmt: skip

    assert 3 * pods == groups.startup_group_size(made)


def test_only_targets_are_reported():
    """Annotations of Jobs and pods, for targets alone; a template cannot set them."""
    template = {"annotations": {ATTEMPT: "99"}}
    body = jobset(
        replicated_job("a", 2, parallelism=2, metadata=template, pod_metadata=template),
        replicated_job("b"),
        generation=4,
        status={
            "restarts": 2,
            "replicatedJobsStatus": [
                {"name": name, "ready": 0, "succeeded": 0, "failed": 0, "active": 0,
                 "suspended": 0, "jobRestarts": restarts}
                for name, restarts in (("a", [0, 3]), ("b", []))
            ],
        },
        timeoutAfterSeconds=60,
        targetReplicatedJobs=["a"],
    )  # fmt: skip
    cluster = ModelCluster(body)
    cluster.reconcile()

    for name in ("test-js-a-0", "test-js-a-1"):
        job = cluster.jobs[name]
        for meta in (job["metadata"], job["spec"]["template"]["metadata"]):
            notes = meta["annotations"]
            found = {key: notes[key] for key in groups.ANNOTATIONS if key in notes}
            assert found == {ATTEMPT: "9", keys.GROUP_SIZE: "4", keys.GROUP_TIMEOUT: "60"}
    other = cluster.jobs["test-js-b-0"]
    assert not groups.ANNOTATIONS & other["metadata"]["annotations"].keys()


@pytest.mark.parametrize(
    ("barrier", "agent", "strategy", "held"),
    [
        (None, None, "Recreate", False),
        ("supervisor", None, "Recreate", True),
        ("init-container", "supervisor", "InPlaceRestart", False),
        (None, "supervisor", "InPlaceRestart", True),
        (None, "sidecar", "InPlaceRestart", False),
        (None, "supervisor", "Recreate", False),
    ],
)
def test_who_is_held_from_within(barrier, agent, strategy, held):
    """Those that ask for it, and those that have agents around their workers anyway."""
    notes = {keys.GROUP_BARRIER_ANNOTATION: barrier, keys.IN_PLACE_AGENT_ANNOTATION: agent}
    jobset = decoded(
        JobSet,
        jobset_json(
            annotations={name: value for name, value in notes.items() if value is not None},
            failurePolicy={"restartStrategy": strategy},
            groupSchedulingConfig={},
        ),
    )

    told = groups.job_annotations(jobset)["replicated-job-a"]

    assert ("supervisor" if held else None) == told.get(keys.GROUP_BARRIER_ANNOTATION)


def test_jobs_without_a_group_are_as_they_were():
    """The feature leaves no trace where it is not used."""
    cluster = ModelCluster(jobset_json())
    cluster.reconcile()

    assert not cluster.group_objects
    for job in cluster.jobs.values():
        assert not groups.ANNOTATIONS & job["metadata"]["annotations"].keys()


@pytest.mark.parametrize("rbac", [False, True])
def test_the_config_map_comes_with_the_jobs(rbac):
    """It is empty, the JobSet's own, and made anew when it is gone; Roles only on request."""
    account = {"serviceAccountName": "trainer"}
    body = jobset(replicated_job("a", pod_spec=account), replicated_job("b"))
    cluster = ModelCluster(body)
    cluster.group_rbac = rbac
    cluster.reconcile()

    kinds = {"ConfigMap", "Role", "RoleBinding"} if rbac else {"ConfigMap"}
    assert {(kind, NAME) for kind in kinds} == set(cluster.group_objects)
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


def test_a_finished_jobset_gets_no_config_map_back():
    """Nobody waits any more."""
    cluster = ModelCluster(jobset(replicated_job("a")))
    cluster.reconcile()
    cluster.complete("test-js-a-0")
    cluster.reconcile()
    cluster.group_objects.clear()

    assert cluster.plan().empty


def test_resuming_is_another_attempt():
    """Jobs and pods get the attempt of the resumption, in the patch that resumes them."""
    cluster = ModelCluster(jobset(replicated_job("a")))
    cluster.reconcile()
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


def test_a_restart_is_another_attempt():
    """A recreated group waits for a signal of its own."""
    cluster = ModelCluster(jobset(replicated_job("a"), replicated_job("b")))
    cluster.change_spec(failurePolicy={"maxRestarts": 3})
    cluster.reconcile()
    cluster.fail("test-js-a-0")
    cluster.reconcile()
    cluster.collect()
    cluster.reconcile()

    assert {"2"} == {job["metadata"]["annotations"][ATTEMPT] for job in cluster.jobs.values()}


def test_restarting_one_job_is_another_attempt_of_that_job():
    """The others keep theirs, and run on."""
    cluster = ModelCluster(jobset(replicated_job("a", 2)))
    rule = {"name": "r", "action": "RestartJob"}
    cluster.change_spec(failurePolicy={"maxRestarts": 3, "rules": [rule]})
    cluster.reconcile()
    cluster.fail("test-js-a-1")
    cluster.reconcile()
    cluster.collect()
    cluster.reconcile()

    attempts = {name: job["metadata"]["annotations"][ATTEMPT] for name, job in cluster.jobs.items()}
    assert attempts == {"test-js-a-0": "1", "test-js-a-1": "2"}


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
def test_what_a_value_lifts(value, attempt):
    """Only the attempts of the same JobSet up to the one it names."""
    assert attempt == lifted_attempt(value, "u")


def test_progress_is_of_the_own_attempt():
    """What was told of an earlier attempt, or of another JobSet, says nothing."""
    told = Progress(7, 8, "2026-01-01T00:00:00Z")
    value = waiting_value("u", 3, told)

    assert told == progress_of(value, "u", 3)
    assert progress_of(value, "u", 4) is None
    assert progress_of(value, "other", 3) is None
    assert progress_of("u 3 7", "u", 3) is None
    assert "7 of 8 pods" in timed_out_message(5, told, "8")
    assert "fewer than 8 pods" in timed_out_message(5, None, "8")
    assert config_map_name("test-js") == NAME


def test_progress_is_reported_a_few_times():
    """However long a group gathers, the number of writes has a bound."""
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
def test_complaints_grow_rare(elapsed, at):
    """Intervals double."""
    assert at == release.next_complaint(elapsed)


def pod(job, index, *, node="", started=False, phase="Pending", attempt="1", of="test-js"):
    """A pod of a Job."""
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


def test_missing_pods_are_named():
    """Each with what is known of the reason, in the order of the spec."""
    cluster = ModelCluster(jobset(replicated_job("a", 2, parallelism=3), replicated_job("b")))
    cluster.reconcile()
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
    missing = release.missing_pods(
        cluster.jobset, [cluster.job(name) for name in cluster.jobs], pods
    )

    without = "it runs without the barrier: was the webhook for pods reached when it was made?"
    assert [
        "test-js-a-0-1-x (not started on node n)",
        "test-js-a-0-2-x (not scheduled)",
        f"test-js-a-1-0-x ({without})",
        "test-js-a-1-1 (its pod does not exist)",
        "test-js-b-0 (its job does not exist)",
    ] == list(map(str, missing))
    told = release.complaint(2, 20, missing, 60.4)
    assert told.message.startswith("2 of 20 pods have started after 60 s; missing: test-js-a-0-1-x")
    assert told.message.endswith(" and 13 more")


def test_jobs_that_were_made_before_the_group_lack_nothing():
    """Their pods run without the barrier, and nobody waits for them."""
    cluster = ModelCluster(jobset(replicated_job("a", 2, parallelism=3), replicated_job("b")))
    cluster.reconcile()
    del cluster.jobs["test-js-a-1"]["metadata"]["annotations"][ATTEMPT]
    jobs = [cluster.job(name) for name in cluster.jobs]

    assert release.pods_to_start(cluster.jobset, jobs) == 4
    missing = map(str, release.missing_pods(cluster.jobset, jobs, []))
    assert all("test-js-a-1" not in each for each in missing)


def alike(job, index, **changed):
    """A pod of a Job that has started, unless it is said otherwise."""
    return pod(job, index, **{"node": "n", "started": True, **changed})


@pytest.mark.parametrize(
    ("fields", "status", "present", "expected"),
    [
        ({}, {}, 3, []),
        ({}, {}, 2, ["test-js-a-0-2 (its pod does not exist)"]),
        # Which indexes have succeeded, and so need no pod, the counts do not tell.
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
def test_pods_that_do_not_exist(fields, status, present, expected):
    """By index where Jobs have indexes; never those that are done, nor any of a finished Job."""
    item = replicated_job("a", parallelism=3, job_spec={"completionMode": "Indexed", **fields})
    cluster = ModelCluster(jobset(item))
    cluster.reconcile()
    cluster.jobs["test-js-a-0"]["status"] = status
    made = cluster.job("test-js-a-0")
    pods = [alike(cluster.jobs["test-js-a-0"], index) for index in range(present)]
    missing = release.missing_pods(cluster.jobset, [made], pods)

    assert expected == list(map(str, missing))


def test_pods_of_other_jobsets_say_nothing():
    """Neither about themselves, nor in the place of a pod that is missing."""
    cluster = ModelCluster(jobset(replicated_job("a")))
    cluster.reconcile()
    body = copy.deepcopy(cluster.jobs["test-js-a-0"])
    body["metadata"] |= {"name": "other-a-0", "uid": "other"}
    others = [pod(body, 0, of="other"), pod(body, 1, of="other", started=True)]
    missing = release.missing_pods(cluster.jobset, [cluster.job("test-js-a-0")], others)

    assert list(map(str, missing)) == ["test-js-a-0-0 (its pod does not exist)"]
