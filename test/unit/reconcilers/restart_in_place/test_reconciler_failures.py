"""Failures, budgets and closed barriers, in a whole manager on a cluster in memory."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.informers import Store
from jobsetpy.reconcilers.execution.metrics import REGISTRY
from support.jobsets import replicated_job
from support.restarts import managed_group
from support.restarts.epoch_plans import RULE, policy
from support.restarts.managed_group import epoch_writes

pytestmark = pytest.mark.looptime

WAITING = {"waiting": {"reason": "PodInitializing"}}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
SPENT = ("True", keys.REACHED_MAX_RESTARTS_REASON)


def item(jobs=2, pods=2, **pod_spec):
    """Return a ReplicatedJob whose workers restart their pods."""
    pod_spec["containers"] = [{"name": "worker", "restartPolicyRules": [RULE]}]
    return replicated_job("w", jobs, parallelism=pods, pod_spec=pod_spec)


def show(rig, name, state, restarts=0, last=None, **status):
    """Set the status of a pod's worker, as its kubelet does."""
    one = {"name": "worker", "state": state, "restartCount": restarts}
    if last is not None:
        one["lastState"] = {"terminated": {"exitCode": last, "finishedAt": None}}
    rig.world.set_status("pods", name, containerStatuses=[one], **status)


async def fail(rig, name, code=1, *, settle_s=5.0, **status):
    """Let a pod's worker fail, and let the manager react."""
    show(rig, name, ended(code), **status)
    await rig.settle(settle_s)


def ended(code):
    """Return a container state."""
    return {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": None}}


async def started(rig, **spec):
    """Create a JobSet whose workers all run at epoch 1, and return the names of its pods."""
    names = await created(rig, **spec)
    for name in names:
        show(rig, name, WAITING)
    await come(rig, names, 1)
    return names


async def created(rig, items=None, *, max_restarts=10, notes=None, **spec):
    """Create a JobSet with its pods, and return their names."""
    rig.create(
        items or item(), annotations=notes, **{"failurePolicy": policy(max_restarts), **spec}
    )
    await rig.settle()
    return rig.run_pods(2)


async def come(rig, names, epoch):
    """Let all pods come to an epoch, and their workers run."""
    await managed_group.come(rig, names, epoch)
    assert rig.epochs()[0] == epoch
    for name in names:
        show(rig, name, RUNNING, restarts=epoch - 1)
    await rig.settle(1)


def message(rig, kind):
    """Return the message of a condition."""
    (found,) = [c["message"] for c in rig.status()["conditions"] if c["type"] == kind]
    return found


def metric(name, **labels):
    """Return the value of a metric of restarts in place."""
    return REGISTRY.get_sample_value(f"jobset_in_place_restart{name}", labels) or 0


async def test_a_failure_is_reported_before_its_pod_is_back(rig):
    """The end of a worker restarts the group immediately, in two writes, with its own exit code."""
    async with rig.manager():
        names = await started(rig)
        rig.world.requests.clear()
        labels = {"cause": "container_failed", "exit_code": "7"}
        before = metric("_causes_total", **labels)
        await fail(rig, names[1], 7, settle_s=0.01)
        text = (
            f"pod {names[1]!r}, container 'worker' exited with 7 (Error): "
            "restarting in place from epoch 1 to 2, 4 pods to follow"
        )
        assert rig.epochs() == (1, 1)
        assert rig.condition("RestartingInPlace") == ("True", keys.CONTAINER_FAILED_REASON)
        assert message(rig, "RestartingInPlace") == text

        # The kubelet continues, and other exit codes that it writes change nothing.
        for name in names:
            show(rig, name, ended(137))
        await rig.settle(1)
        await come(rig, names, 2)

        assert epoch_writes(rig) == [{"deprecatedEpoch": 1}, {"syncedEpoch": 2}]
        assert rig.events() == [
            (keys.IN_PLACE_RESTART_STARTED_REASON, text, 1),
            (keys.IN_PLACE_RESTART_COMPLETED_REASON, "4 pods are at epoch 2: workers may run", 1),
        ]
        assert rig.condition("RestartingInPlace") == ("False", keys.BARRIER_LIFTED_REASON)
        assert metric("_causes_total", **labels) == before + 1


async def resume(rig, names):
    """Suspend the JobSet, delete its pods, resume it, and create pods again."""
    rig.change(suspend=True)
    await rig.settle()
    for name in names:
        rig.world.delete("pods", name)
    await rig.settle()
    rig.change(suspend=False)
    await rig.settle()
    rig.run_pods(2)


async def test_statuses_of_the_run_before_restart_nothing(rig):
    """They may be stored after the barrier has lifted."""
    async with rig.manager():
        names = await started(rig)
        await managed_group.come(rig, names, 2)
        assert rig.epochs() == (2, 1)

        for name in names:
            show(rig, name, ended(137))
        await rig.settle(1)
        assert rig.epochs() == (2, 1)

        for name in names:
            show(rig, name, RUNNING, restarts=1)
        await rig.settle(1)
        await fail(rig, names[0], 9, restarts=1)
        assert rig.epochs() == (2, 2)


@pytest.mark.parametrize(("wait", "expected"), [(1, (1, 0)), (31, (1, 1))])
async def test_a_new_manager_trusts_statuses_after_a_while(rig, wait, expected):
    """It cannot know to which run the first ones belong; after some time it is the current one."""
    async with rig.manager():
        names = await started(rig)
    async with rig.manager():
        await rig.settle(wait)
        await fail(rig, names[0], 9, settle_s=1)

        assert rig.epochs() == expected
        await come(rig, names, 2)


@pytest.mark.parametrize("end", ["suspend", "delete", "complete"])
async def test_pods_that_are_deleted_with_their_jobs_are_no_failures(rig, end):
    """At a suspension or at the end."""
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


async def test_crashes_are_counted_over_several_managers(rig):
    """The counts at the beginning of a restart are in the status."""
    async with rig.manager():
        names = await started(rig, max_restarts=3)
        await come(rig, names, 2)
        await fail(rig, names[0], restarts=1)
        assert rig.epochs() == (2, 2)
    for count in range(2, 7):
        async with rig.manager():
            assert rig.condition("Failed") is None
            show(rig, names[0], WAITING, restarts=count, last=137)
            await rig.settle()

    assert rig.condition("Failed") == SPENT


async def test_deleted_jobset_is_forgotten(rig):
    """Its stalled barrier no longer counts in metrics."""
    async with rig.manager():
        names = await started(rig)
        await fail(rig, names[0], settle_s=70)
        assert (metric("_missing_pods"), metric("s_stalled")) == (4, 1)

        rig.world.delete("jobsets", "test-js")
        await rig.settle()
        assert (metric("_missing_pods"), metric("s_stalled")) == (0, 0)


async def test_check_of_a_closed_barrier_reads_no_other_pods(rig, monkeypatch):
    """The pods that block it are found by an index, not among all pods of the cluster."""
    scanned = []
    everything = Store.list

    def recorded(store, namespace=None):
        scanned.append(store.name)
        return everything(store, namespace)

    monkeypatch.setattr(Store, "list", recorded)
    async with rig.manager():
        names = await started(rig)
        scanned.clear()
        for name in names[1:]:
            rig.report(name, 2)
        await rig.settle(70)

        assert message(rig, "BarrierStalled").startswith("1 of 4 pods has not come to epoch 2")
        assert "Pod" not in scanned


async def lost_without_manager(rig, max_restarts):
    """Delete a pod of a running group while no manager runs, and return the names of all."""
    async with rig.manager():
        names = await started(rig, max_restarts=max_restarts)
    rig.world.delete("pods", names[0])
    rig.world.requests.clear()
    return names


async def test_group_restarts_when_a_new_manager_finds_a_pod_missing(rig):
    """After some seconds."""
    names = await lost_without_manager(rig, 10)
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


async def test_jobset_fails_when_a_pod_stays_missing_and_no_restart_is_left(rig):
    """Before that a condition names the pod, the time and the reason."""
    await lost_without_manager(rig, 0)
    async with rig.manager():
        await rig.settle(11)
        assert rig.condition("BarrierStalled") == ("True", keys.NO_RESTARTS_LEFT_REASON)
        text = message(rig, "BarrierStalled")
        assert text.startswith("1 of 4 pods has been missing since 2026-01-01T00:00:")
        assert text.endswith(
            ": job 'test-js-w-0' is missing 1 pod; no restarts are left, so the jobset fails if it is not "
            "complete 60 s later"
        )
        assert len(rig.events(keys.BARRIER_STALLED_CONDITION)) == 1
        assert rig.condition("Failed") is None

        await rig.settle(65)
        assert rig.condition("Failed") == SPENT
        assert message(rig, "Failed") == (
            "jobset failed due to reaching max number of restarts: 1 of 4 pods has been missing for "
            "more than 70 s: job 'test-js-w-0' is missing 1 pod"
        )


async def test_condition_is_cleared_when_a_group_is_complete_again(rig):
    """No pod is missing in a smaller group."""
    await lost_without_manager(rig, 0)
    async with rig.manager():
        await rig.settle(11)
        assert rig.condition("BarrierStalled") == ("True", keys.NO_RESTARTS_LEFT_REASON)
        rig.change(replicatedJobs=[item(1, 2)])
        await rig.settle(100)

        assert rig.condition("Failed") is None
        assert rig.condition("BarrierStalled") == ("False", keys.BARRIER_LIFTED_REASON)


async def test_group_without_expected_pods_has_no_barrier(rig):
    """All its pods have succeeded, or it never had any."""
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


async def test_two_managers_make_one_restart(rig):
    """A failure, a new manager in the middle, and the end: two writes."""
    async with rig.manager():
        names = await started(rig)
        rig.world.requests.clear()
        await fail(rig, names[0], settle_s=1)
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
    """Evictions by the taints of a failed node are failures; requests to leave are not."""
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
