"""Failures, budgets and closed barriers, in a whole manager on a cluster in memory."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.informers import Store
from jobsetpy.reconcilers.execution import metrics as execution_metrics
from jobsetpy.testing.jobsets import replicated_job

pytestmark = pytest.mark.looptime

RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
WAITING = {"waiting": {"reason": "PodInitializing"}}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def item(jobs=2, pods=2):
    """A ReplicatedJob whose workers restart their pods."""
    out = replicated_job("w", jobs, parallelism=pods)
    out["template"]["spec"]["template"] = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "worker", "restartPolicyRules": [RULE]}],
        }
    }
    return out


def policy(max_restarts=10, **more):
    """A failure policy that restarts in place."""
    return {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart", **more}


def show(rig, name, state, restarts=0, last=None, **status):
    """The kubelet tells of the worker of a pod."""
    one = {"name": "worker", "state": state, "restartCount": restarts}
    if last is not None:
        one["lastState"] = {"terminated": {"exitCode": last, "finishedAt": None}}
    rig.world.set_status("pods", name, containerStatuses=[one], **status)


def ended(code):
    """A container state."""
    return {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": None}}


async def started(rig, *, jobs=2, pods=2, **spec):
    """A JobSet whose workers all run at epoch 1; the names of its pods."""
    rig.create(item(jobs, pods), **{"failurePolicy": policy(), **spec})
    await rig.settle()
    names = rig.run_pods(pods)
    for name in names:
        show(rig, name, WAITING)
    await come(rig, names, 1)
    return names


async def come(rig, names, epoch):
    """All pods come to an epoch, and their workers run."""
    for name in names:
        rig.report(name, epoch)
    await rig.settle()
    assert epoch == rig.epochs()[0]
    for name in names:
        show(rig, name, RUNNING, restarts=epoch - 1)
    await rig.settle(1)


def epoch_writes(rig):
    """Numbers and kinds of all status patches that hold an epoch."""
    return [
        {key: value for key, value in body.items() if key.endswith("Epoch")}
        for body in rig.status_writes()
        if any(key.endswith("Epoch") for key in body)
    ]


def message(rig, kind):
    """The message of a condition."""
    (found,) = [c["message"] for c in rig.status()["conditions"] if c["type"] == kind]
    return found


def causes(cause, code=""):
    """How many restarts had a cause."""
    labels = {"cause": cause, "exit_code": code}
    name = "jobset_in_place_restart_causes_total"
    return execution_metrics.REGISTRY.get_sample_value(name, labels) or 0


async def test_a_failure_is_reported_before_its_pod_is_back(rig):
    """The end of a worker restarts the group at once, in two writes, and with its own code."""
    async with rig.manager():
        names = await started(rig)
        rig.world.requests.clear()
        before = causes("container_failed", "7")
        show(rig, names[1], ended(7))
        await rig.settle(0.01)
        text = (
            f"pod {names[1]!r}, container 'worker' exited with 7 (Error): "
            "restarting in place from epoch 1 to 2, 4 pods to follow"
        )
        assert rig.epochs() == (1, 1)
        assert rig.condition("RestartingInPlace") == ("True", keys.CONTAINER_FAILED_REASON)
        assert text == message(rig, "RestartingInPlace")

        # The kubelet goes on, and whatever it writes over the exit code changes nothing.
        for name in names:
            show(rig, name, ended(137))
        await rig.settle(1)
        await come(rig, names, 2)

        assert epoch_writes(rig) == [{"deprecatedEpoch": 1}, {"syncedEpoch": 2}]
        assert [
            (keys.IN_PLACE_RESTART_STARTED_REASON, text, 1),
            (keys.IN_PLACE_RESTART_COMPLETED_REASON, "4 pods are at epoch 2: workers may run", 1),
        ] == rig.events()
        assert rig.condition("RestartingInPlace") == ("False", keys.BARRIER_LIFTED_REASON)
        assert before + 1 == causes("container_failed", "7")


async def test_restarts_in_place_are_shown(rig):
    """The status says how many have counted, however they began; a resume is none."""
    async with rig.manager():
        names = await started(rig)
        assert rig.status()["inPlaceRestart"]["restarts"] == 0
        show(rig, names[0], ended(7))
        await rig.settle()
        assert rig.status()["inPlaceRestart"]["restarts"] == 1
        await come(rig, names, 2)
        await come(rig, names, 3)
        assert rig.status()["inPlaceRestart"]["restarts"] == 2

        rig.change(suspend=True)
        await rig.settle()
        for name in names:
            rig.world.delete("pods", name)
        rig.change(suspend=False)
        await rig.settle()
        rig.run_pods(2)
        await come(rig, names, 4)
        assert rig.status()["inPlaceRestart"]["restarts"] == 2
        assert rig.status()["restarts"] == 0


async def test_many_failures_are_one_restart(rig):
    """Whatever else fails of the same epoch belongs to the same restart."""
    async with rig.manager():
        names = await started(rig)
        rig.world.requests.clear()
        for name in names:
            show(rig, name, ended(1))
        await rig.settle()
        assert rig.epochs() == (1, 1)
        await come(rig, names, 2)

        assert epoch_writes(rig) == [{"deprecatedEpoch": 1}, {"syncedEpoch": 2}]


async def test_statuses_of_the_run_before(rig):
    """A status that is stored after the barrier has lifted restarts nobody."""
    async with rig.manager():
        names = await started(rig)
        for name in names:
            rig.report(name, 2)
        await rig.settle(1)
        assert rig.epochs() == (2, 1)

        for name in names:
            show(rig, name, ended(137))
        await rig.settle(1)
        assert rig.epochs() == (2, 1)

        for name in names:
            show(rig, name, RUNNING, restarts=1)
        await rig.settle(1)
        show(rig, names[0], ended(9), restarts=1)
        await rig.settle(1)
        assert rig.epochs() == (2, 2)


@pytest.mark.parametrize(("wait", "expected"), [(1, (1, 0)), (31, (1, 1))])
async def test_a_new_manager_trusts_statuses_after_a_while(rig, wait, expected):
    """It cannot know of which run the first ones are; after some time they are of this one."""
    async with rig.manager():
        names = await started(rig)
    async with rig.manager():
        await rig.settle(wait)
        show(rig, names[0], ended(9))
        await rig.settle(1)

        assert expected == rig.epochs()
        await come(rig, names, 2)


async def test_a_pod_that_is_deleted(rig):
    """Its group restarts at once; the replacement is waited for."""
    async with rig.manager():
        names = await started(rig)
        rig.world.delete("pods", names[0])
        await rig.settle()

        assert rig.epochs() == (1, 1)
        assert rig.condition("RestartingInPlace") == ("True", keys.POD_DELETED_REASON)
        rig.run_pods(2)
        await come(rig, names, 2)


@pytest.mark.parametrize("end", ["suspend", "delete", "complete"])
async def test_pods_that_are_not_wanted_any_more(rig, end):
    """Pods that go with their Jobs, at a suspension or at the end, are no failures."""
    async with rig.manager():
        names = await started(rig)
        rig.world.requests.clear()
        if end == "suspend":
            rig.change(suspend=True)
        elif end == "delete":
            rig.world.delete("jobsets", "test-js")
        else:
            for name in ("test-js-w-0", "test-js-w-1"):
                rig.finish(name)
        await rig.settle()
        for name in names:
            if rig.world.get("pods", name) is not None:
                rig.world.delete("pods", name)
        await rig.settle()

        assert epoch_writes(rig) == []
        assert rig.events(keys.IN_PLACE_RESTART_STARTED_REASON) == []


async def test_a_suspended_jobset_resumes_at_no_cost(rig):
    """Its new pods join the next epoch, as often as one likes, and nothing is told."""
    async with rig.manager():
        names = await started(rig, failurePolicy=policy(max_restarts=0))
        for epoch in range(2, 6):
            rig.change(suspend=True)
            await rig.settle()
            for name in names:
                rig.world.delete("pods", name)
            await rig.settle()
            rig.change(suspend=False)
            await rig.settle()
            rig.run_pods(2)
            await come(rig, names, epoch)

        assert rig.status()["inPlaceRestart"]["uncountedEpochs"] == 4
        assert rig.events(keys.IN_PLACE_RESTART_STARTED_REASON) == []
        assert rig.events(keys.IN_PLACE_RESTART_COMPLETED_REASON) == []

        rig.report(names[0], 6)
        await rig.settle()
        assert rig.condition("Failed") == ("True", keys.REACHED_MAX_RESTARTS_REASON)


async def test_a_jobset_is_suspended_in_the_middle_of_a_restart(rig):
    """The restart is over, and says so."""
    async with rig.manager():
        names = await started(rig)
        show(rig, names[0], ended(1))
        await rig.settle()
        rig.change(suspend=True)
        await rig.settle()

        assert rig.condition("RestartingInPlace") == ("False", keys.JOBSET_SUSPENDED_REASON)


async def test_a_group_that_grows_restarts_at_no_cost(rig):
    """Running pods restart, to start together with the new ones."""
    async with rig.manager():
        names = await started(rig, failurePolicy=policy(max_restarts=0))
        rig.change(replicatedJobs=[item(3, 2)])
        await rig.settle()
        names = rig.run_pods(2)
        rig.report(names[-1], 2)
        await rig.settle()
        assert rig.epochs() == (1, 1)
        assert len(rig.events(keys.IN_PLACE_GROUP_RESIZED_REASON)) == 1
        await come(rig, names, 2)

        record = rig.status()["inPlaceRestart"]
        assert (record["uncountedEpochs"], record["pods"]) == (1, 6)
        assert rig.condition("RestartingInPlace") is None
        assert rig.condition("Failed") is None


@pytest.mark.parametrize("counts", [True, False])
async def test_recreated_jobs_are_counted_once(rig, counts):
    """By the failure policy, and not again by the epoch of their new pods."""
    rules = [{"name": "r", "action": "RestartJobSetAndIgnoreMaxRestarts"}]
    rules = [] if counts else rules
    async with rig.manager():
        await started(rig, failurePolicy=policy(max_restarts=2, rules=rules))
        rig.finish("test-js-w-0", "Failed")
        await rig.settle()
        assert {"1"} == set(rig.jobs().values())
        names = rig.run_pods(2)
        await come(rig, names, 2)
        await come(rig, names, 3)
        if not counts:
            await come(rig, names, 4)

        rig.report(names[0], 4 if counts else 5)
        await rig.settle()
        assert rig.condition("Failed") == ("True", keys.REACHED_MAX_RESTARTS_REASON)


async def test_a_job_that_fails_when_the_restarts_are_spent(rig):
    """Restarts in place and of all Jobs share one budget; the end does not wait for new pods."""
    async with rig.manager():
        names = await started(rig, failurePolicy=policy(max_restarts=1))
        await come(rig, names, 2)
        rig.finish("test-js-w-0", "Failed")
        await rig.settle()

        assert rig.condition("Failed") == ("True", keys.REACHED_MAX_RESTARTS_REASON)
        assert {name: n for name, n in rig.jobs().items() if name != "test-js-w-0"} == {}


async def test_a_job_that_is_recreated_costs_nothing(rig):
    """Somebody asked for it; the others restart beside it."""
    async with rig.manager():
        names = await started(rig, failurePolicy=policy(max_restarts=0))
        rig.world.patch(
            "jobs", "test-js-w-0", {"metadata": {"annotations": {keys.RESTART_ANNOTATION: ""}}}
        )
        await rig.settle()
        assert rig.epochs() == (1, 1)

        names = rig.run_pods(2)
        await come(rig, names, 2)
        assert rig.condition("Failed") is None
        assert rig.status()["inPlaceRestart"]["uncountedEpochs"] == 1


async def test_a_container_that_keeps_failing_before_the_barrier(rig):
    """It ends the JobSet, and is named."""
    async with rig.manager():
        rig.create(item(), failurePolicy=policy(max_restarts=2))
        await rig.settle()
        names = rig.run_pods(2)
        for count in (1, 2):
            show(rig, names[0], WAITING, restarts=count, last=1)
            await rig.settle()
        assert rig.condition("Failed") is None

        show(rig, names[0], WAITING, restarts=3, last=1)
        await rig.settle()
        assert rig.condition("Failed") == ("True", keys.REACHED_MAX_RESTARTS_REASON)
        assert (
            "jobset failed due to reaching max number of restarts: container 'worker' of pod "
            f"{names[0]!r} was restarted 3 times before all pods had come to epoch 1"
        ) == message(rig, "Failed")


async def test_it_is_bounded_over_several_managers(rig):
    """What was there when a restart began is in the status."""
    async with rig.manager():
        names = await started(rig, failurePolicy=policy(max_restarts=3))
        await come(rig, names, 2)
        show(rig, names[0], ended(1), restarts=1)
        await rig.settle()
        assert rig.epochs() == (2, 2)
    for count in range(2, 7):
        async with rig.manager():
            assert rig.condition("Failed") is None
            show(rig, names[0], WAITING, restarts=count, last=137)
            await rig.settle()

    assert rig.condition("Failed") == ("True", keys.REACHED_MAX_RESTARTS_REASON)


async def test_within_a_window_only_recent_crashes_end_the_jobset(rig):
    """With ``max-restarts-window`` older ones cost nothing any more, whoever leads."""
    async with rig.manager():
        rig.create(item(), failurePolicy=policy(max_restarts=2))
        notes = {keys.MAX_RESTARTS_WINDOW_ANNOTATION: "5m"}
        rig.world.patch(JobSet, "test-js", {"metadata": {"annotations": notes}})
        await rig.settle()
        names = rig.run_pods(2)
    count = 0
    for _ in range(2):
        async with rig.manager():
            for _ in range(2):
                count += 1
                await rig.settle(170)
                show(rig, names[0], WAITING, restarts=count, last=1)
                await rig.settle(1)
                assert rig.condition("Failed") is None
    async with rig.manager():
        await rig.settle(60)
        show(rig, names[0], WAITING, restarts=count + 1, last=1)
        await rig.settle(1)
        assert rig.condition("Failed") == ("True", keys.REACHED_MAX_RESTARTS_REASON)
        assert (
            "jobset failed due to reaching max number of restarts within 5 min: container 'worker' "
            f"of pod {names[0]!r} was restarted 3 times before all pods had come to epoch 1"
        ) == message(rig, "Failed")


def show_all(rig, name, agent=(0, None), worker=(0, None), mesh=(0, None)):
    """The kubelet tells how often the containers of a pod were restarted, and of their last ends."""

    def one(container, restarts, last):
        found = {"name": container, "state": WAITING, "restartCount": restarts}
        if last is not None:
            found["lastState"] = {"terminated": {"exitCode": last, "finishedAt": None}}
        return found

    sidecars = [one("jobset-agent", *agent), one("istio-proxy", *mesh)]
    rig.world.set_status(
        "pods", name, initContainerStatuses=sidecars, containerStatuses=[one("worker", *worker)]
    )


def with_agent(jobs=2, pods=2):
    """A ReplicatedJob whose pods have an agent as a sidecar."""
    out = item(jobs, pods)
    rules = [RULE]
    agent = {"name": "jobset-agent", "restartPolicy": "Always", "restartPolicyRules": rules}
    out["template"]["spec"]["template"]["spec"]["initContainers"] = [agent]
    return out


async def test_restarts_without_a_failure_are_not_charged_later(rig):
    """An agent that its probe ended often is killed once, with its group: that is one restart."""
    async with rig.manager():
        rig.create(with_agent(), failurePolicy=policy(max_restarts=10))
        await rig.settle()
        names = rig.run_pods(2)
        for count in range(1, 21):
            show_all(rig, names[0], agent=(count, 0))
            await rig.settle(0.1)
        await come(rig, names, 1)
        show(rig, names[1], ended(1))
        await rig.settle()
        assert rig.epochs() == (1, 1)

        show_all(rig, names[0], agent=(21, 137), worker=(1, 137))
        await rig.settle()
        assert rig.condition("Failed") is None
        await come(rig, names, 2)


async def test_a_stranger_that_crashes_is_not_charged(rig):
    """A mesh's sidecar, which the JobSet does not name, may crash while others wait for a node."""
    async with rig.manager():
        rig.create(with_agent(), failurePolicy=policy(max_restarts=2))
        await rig.settle()
        names = rig.run_pods(2)
        for count in range(1, 9):
            show_all(rig, names[0], mesh=(count, 1))
            await rig.settle(0.1)

        assert rig.condition("Failed") is None
        assert rig.status_writes()[1:] == []
        await come(rig, names, 1)


async def test_each_pod_has_its_own_count(rig):
    """What one pod went through before a restart hides nothing of another's crashes."""
    async with rig.manager():
        rig.create(with_agent(), failurePolicy=policy(max_restarts=3))
        await rig.settle()
        names = rig.run_pods(2)
        for count in range(1, 21):
            show_all(rig, names[0], agent=(count, 0))
        await come(rig, names, 1)
        show(rig, names[1], ended(1))
        await rig.settle()
        for count in range(1, 5):
            assert rig.condition("Failed") is None
            show_all(rig, names[1], agent=(count, 137))
            await rig.settle()
        show_all(rig, names[1], agent=(5, 137))
        await rig.settle()

        assert rig.condition("Failed") == ("True", keys.REACHED_MAX_RESTARTS_REASON)
        assert (
            "jobset failed due to reaching max number of restarts: container 'jobset-agent' of pod "
            f"{names[1]!r} was restarted 4 times before all pods had come to epoch 2"
        ) == message(rig, "Failed")


async def test_a_barrier_that_stays_closed(rig):
    """After a minute the pods that hold it are named; when it lifts, that is over."""
    async with rig.manager():
        names = await started(rig)
        rig.world.requests.clear()
        show(rig, names[0], ended(1))
        await rig.settle(1)
        for name in names[1:]:
            rig.report(name, 2)
        await rig.settle(50)
        assert rig.condition("BarrierStalled") is None

        await rig.settle(15)
        text = f"1 of 4 pods has not come to epoch 2 for more than 60 s: pod {names[0]!r} (at"
        assert rig.condition("BarrierStalled") == ("True", keys.PODS_MISSING_REASON)
        assert message(rig, "BarrierStalled").startswith(text)
        await rig.settle(300)
        assert len(rig.events(keys.BARRIER_STALLED_CONDITION)) == 1
        assert (
            execution_metrics.REGISTRY.get_sample_value("jobset_in_place_restart_missing_pods") == 1
        )
        assert execution_metrics.REGISTRY.get_sample_value("jobset_in_place_restarts_stalled") == 1
        writes = len(rig.status_writes())

        rig.world.delete("pods", names[0])
        await rig.settle(600)
        assert "job 'test-js-w-0' is missing 1 pod" in message(rig, "BarrierStalled")
        assert writes + 1 == len(rig.status_writes())
        rig.run_pods(2)
        await come(rig, names, 2)
        assert rig.condition("BarrierStalled") == ("False", keys.BARRIER_LIFTED_REASON)
        assert (
            execution_metrics.REGISTRY.get_sample_value("jobset_in_place_restart_missing_pods") == 0
        )
        assert execution_metrics.REGISTRY.get_sample_value("jobset_in_place_restarts_stalled") == 0


async def test_a_look_at_a_closed_barrier_reads_no_other_pods(rig, monkeypatch):
    """Who holds it is found by an index: all pods of the cluster would be read at each look."""
    scanned = []
    everything = Store.list

    def noted(store, namespace=None):
        scanned.append(store.name)
        return everything(store, namespace)

    monkeypatch.setattr(Store, "list", noted)
    async with rig.manager():
        names = await started(rig)
        scanned.clear()
        for name in names[1:]:
            rig.report(name, 2)
        await rig.settle(70)

        assert message(rig, "BarrierStalled").startswith("1 of 4 pods has not come to epoch 2")
        assert "Pod" not in scanned


async def lost_unseen(rig, max_restarts):
    """A running group that loses a pod while no manager is there; the names of its pods."""
    async with rig.manager():
        names = await started(rig, failurePolicy=policy(max_restarts=max_restarts))
    rig.world.delete("pods", names[0])
    rig.world.requests.clear()
    return names


async def test_a_member_that_vanished_unseen(rig):
    """A manager that finds the group without it restarts the others, after some seconds."""
    names = await lost_unseen(rig, 10)
    async with rig.manager():
        await rig.settle(9)
        assert rig.epochs() == (1, 0)
        await rig.settle(2)

        assert rig.epochs() == (1, 1)
        assert rig.condition("RestartingInPlace") == ("True", keys.PODS_MISSING_REASON)
        assert message(rig, "RestartingInPlace") == (
            "1 of 4 pods has been missing for more than 10 s: job 'test-js-w-0' is missing 1 pod: "
            "restarting in place from epoch 1 to 2, 3 pods to follow"
        )
        rig.run_pods(2)
        await come(rig, names, 2)
        assert epoch_writes(rig) == [{"deprecatedEpoch": 1}, {"syncedEpoch": 2}]


async def test_a_member_that_comes_back_in_time(rig):
    """The new pod's agent opens the epoch as always."""
    names = await lost_unseen(rig, 10)
    async with rig.manager():
        await rig.settle(5)
        rig.run_pods(2)
        await come(rig, names, 2)
        await rig.settle(100)

        assert rig.epochs() == (2, 1)
        assert rig.condition("BarrierStalled") is None


async def test_a_member_that_is_missing_when_the_restarts_are_spent(rig):
    """That is said, with who, since when and why nothing is done; and later it is a failure."""
    await lost_unseen(rig, 0)
    async with rig.manager():
        await rig.settle(11)
        assert rig.condition("BarrierStalled") == ("True", keys.NO_RESTARTS_LEFT_REASON)
        assert message(rig, "BarrierStalled").startswith(
            "1 of 4 pods has been missing since 2026-01-01T00:00:"
        )
        assert message(rig, "BarrierStalled").endswith(
            ": job 'test-js-w-0' is missing 1 pod; no restarts are left, so the jobset fails if it is not "
            "complete 60 s later"
        )
        assert len(rig.events(keys.BARRIER_STALLED_CONDITION)) == 1
        assert rig.condition("Failed") is None

        await rig.settle(65)
        assert rig.condition("Failed") == ("True", keys.REACHED_MAX_RESTARTS_REASON)
        assert message(rig, "Failed") == (
            "jobset failed due to reaching max number of restarts: 1 of 4 pods has been missing for "
            "more than 70 s: job 'test-js-w-0' is missing 1 pod"
        )


async def test_a_group_that_is_complete_again_says_so(rig):
    """A smaller group lacks nobody: what was said is taken back."""
    await lost_unseen(rig, 0)
    async with rig.manager():
        await rig.settle(11)
        assert rig.condition("BarrierStalled") == ("True", keys.NO_RESTARTS_LEFT_REASON)
        rig.change(replicatedJobs=[item(1, 2)])
        await rig.settle(100)

        assert rig.condition("Failed") is None
        assert rig.condition("BarrierStalled") == ("False", keys.BARRIER_LIFTED_REASON)


async def test_a_group_that_grows_is_complete(rig):
    """Its workers run on until the new pods have come, however long that takes."""
    async with rig.manager():
        await started(rig)
        rig.change(replicatedJobs=[item(3, 2)])
        await rig.settle(200)

        assert rig.epochs() == (1, 0)
        assert rig.condition("BarrierStalled") is None


async def test_pods_of_a_job_that_ends_are_not_missing(rig):
    """What becomes of the group is the failure policy's to say."""
    async with rig.manager():
        names = await started(rig)
        rig.world.set_status(
            "jobs", "test-js-w-0", conditions=[{"type": "FailureTarget", "status": "True"}]
        )
        await rig.settle(1)
        for name in names[:2]:
            rig.world.delete("pods", name)
        await rig.settle(200)

        assert rig.epochs() == (1, 0)
        assert rig.condition("BarrierStalled") is None


async def test_an_open_barrier_is_not_watched(rig):
    """While workers run nothing is asked again, and nothing is written."""
    async with rig.manager():
        await started(rig)
        rig.world.requests.clear()
        await rig.settle(1000)

        assert rig.status_writes() == []


async def test_a_group_that_is_done_waits_for_none(rig):
    """Neither one of which all pods have succeeded, nor one without pods, has a barrier."""
    async with rig.manager():
        names = await started(rig)
        tracked = {"metadata": {"finalizers": [keys.JOB_TRACKING_FINALIZER]}}
        for name in names:
            rig.world.patch("pods", name, tracked)  # as the Job controller creates them
            rig.world.set_status("pods", name, phase="Succeeded")
        rig.create(item(jobs=0), failurePolicy=policy(), name="empty")
        await rig.settle(200)

        assert rig.condition("BarrierStalled") is None
        assert rig.events(keys.BARRIER_STALLED_CONDITION) == []


async def test_an_early_sign_does_not_end_a_jobset(rig):
    """Without restarts left nothing is done before the failed pod's agent tells."""
    async with rig.manager():
        names = await started(rig, failurePolicy=policy(max_restarts=0))
        show(rig, names[0], ended(1))
        await rig.settle()
        assert rig.epochs() == (1, 0)
        assert rig.condition("Failed") is None

        rig.report(names[0], 2)
        await rig.settle()
        assert rig.condition("Failed") == ("True", keys.REACHED_MAX_RESTARTS_REASON)


async def test_phases_are_measured(rig):
    """Each restart once in each phase."""

    def counts():
        name = "jobset_in_place_restart_phase_seconds_count"
        phases = ("detect", "deprecate", "gather", "lift")
        found = [execution_metrics.REGISTRY.get_sample_value(name, {"phase": p}) for p in phases]
        total = execution_metrics.REGISTRY.get_sample_value("jobset_in_place_restart_seconds_count")
        return [*found, total]

    async with rig.manager():
        names = await started(rig)
        before = counts()
        show(rig, names[0], ended(1))
        await rig.settle(1)
        for name in names:
            rig.report(name, 2)
            await asyncio.sleep(1)
        await rig.settle()

        assert rig.epochs() == (2, 1)
        assert [number + 1 for number in before] == counts()


async def test_two_managers_make_one_restart(rig):
    """A failure, a new manager in the middle, and the end: two writes."""
    async with rig.manager():
        names = await started(rig)
        rig.world.requests.clear()
        show(rig, names[0], ended(1))
        await rig.settle(1)
        for name in names[:2]:
            rig.report(name, 2)
        await rig.settle(1)
    for name in names:
        show(rig, name, ended(137))
    async with rig.manager():
        await rig.settle(1)
        await come(rig, names, 2)

        assert epoch_writes(rig) == [{"deprecatedEpoch": 1}, {"syncedEpoch": 2}]
        assert rig.status()["inPlaceRestart"]["uncountedEpochs"] == 0
        assert len(rig.events(keys.IN_PLACE_RESTART_STARTED_REASON)) == 1
        assert len(rig.events(keys.IN_PLACE_RESTART_COMPLETED_REASON)) == 1


@pytest.mark.parametrize(
    ("ready", "reason", "expected"),
    [
        ("Unknown", "DeletionByTaintManager", ("NodeLost", 1)),
        ("False", "DeletionByTaintManager", ("NodeLost", 1)),
        ("True", "DeletionByTaintManager", ("PodLeaving", 0)),
        ("Unknown", "EvictionByEvictionAPI", ("PodLeaving", 0)),
    ],
    ids=["lost", "not ready", "maintenance", "drain"],
)
async def test_an_eviction_counts_when_its_node_is_lost(rig, ready, reason, expected):
    """What the taints of a failed node evict has failed; who is asked to leave has not."""
    async with rig.manager():
        rig.world.create("nodes", {"metadata": {"name": "n1"}})
        names = await started(rig)
        rig.world.patch("pods", names[0], {"spec": {"nodeName": "n1"}})
        await rig.settle()
        rig.world.set_status("nodes", "n1", conditions=[{"type": "Ready", "status": ready}])
        await rig.settle()
        notice = {"type": "DisruptionTarget", "status": "True", "reason": reason}
        rig.world.set_status("pods", names[0], conditions=[notice])
        await rig.settle()

        (record,) = rig.status()["restartHistory"]
        assert (record["cause"]["reason"], rig.status()["inPlaceRestart"]["restarts"]) == expected
        assert rig.condition("RestartingInPlace") == ("True", expected[0])


async def test_a_warning_is_given_when_pods_are_asked_to_leave_again_and_again(rig):
    """A descheduler may evict pods for ever, which no budget ends."""
    async with rig.manager():
        names = await started(rig)
        notice = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        warned = []
        for epoch in (2, 3, 4, 5):
            rig.world.set_status("pods", names[0], conditions=[notice])
            await rig.settle()
            rig.world.set_status("pods", names[0], conditions=[])
            await come(rig, names, epoch)
            warned.append([text for reason, text, _ in rig.events() if reason == "PodsLeaveOften"])
            await rig.settle(60)

        assert [len(texts) for texts in warned] == [0, 0, 1, 2]
        assert warned[2][0].startswith("3 restarts within 1 h because pods were asked to leave")
        assert rig.status()["inPlaceRestart"]["restarts"] == 0
