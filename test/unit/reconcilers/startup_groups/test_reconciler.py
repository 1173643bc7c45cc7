"""The leader pods reconciler in a whole manager, on a cluster in memory and in virtual time."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.execution.kinds import Role, RoleBinding
from jobsetpy.testing import make_pod
from jobsetpy.testing.jobsets import replicated_job

pytestmark = pytest.mark.looptime

NAME = "test-js-group-scheduling"
WAITING, DONE = keys.GROUP_IN_PROGRESS_CONDITION, keys.GROUP_COMPLETED_CONDITION


def begin(rig, *jobs, config=None, **spec):
    """Create a JobSet of two Jobs with two pods each, all of them a group."""
    return rig.create(
        *(jobs or (replicated_job("w", 2, parallelism=2),)),
        groupSchedulingConfig=config or {},
        **spec,
    )


def make_pods(rig):
    """The pods of all Jobs that lack some, as the Job controller makes them; their names."""
    names = []
    for job in rig.world.list("jobs"):
        template = job["spec"]["template"]["metadata"]["annotations"]
        for index in range(job["spec"]["parallelism"]):
            name = f"{job['metadata']['name']}-{index}"
            if job["spec"]["suspend"] or rig.world.get("pods", name) is not None:
                continue
            made = make_pod(name).of(job, index).annotations(template).phase("Pending")
            rig.world.create("pods", made.build())
            names.append(name)
    return names


def start(rig, *names, state="running", **status):
    """The kubelet runs the barrier of pods."""
    status |= {"name": keys.GROUP_INIT_CONTAINER, "state": {state: {}}}
    for name in names:
        rig.world.set_status("pods", name, initContainerStatuses=[status])


def value(rig, key="started"):
    """What the ConfigMap says."""
    return (rig.world.get("configmaps", NAME).get("data") or {}).get(key)


def map_writes(rig):
    """The keys that were written, in order."""
    found = rig.world.requests.matching("patch", "configmaps")
    return [key for request in found for key in request.json["data"]]


async def test_the_last_start_releases_the_group(rig):
    """By one write, which names JobSet and attempt; the condition follows."""
    async with rig.manager(groups=True):
        begin(rig)
        await rig.settle(0.5)
        *most, last = make_pods(rig)
        start(rig, *most)
        await rig.settle(0.3)
        assert value(rig) is None

        start(rig, last)
        await rig.settle()

        uid = rig.jobset()["metadata"]["uid"]
        assert value(rig) == f"{uid} 1\n"
        assert map_writes(rig) == ["started"]
        assert rig.condition(DONE) == ("True", keys.GROUP_STARTED_REASON)
        assert rig.condition(WAITING) is None


async def test_pods_that_give_up_in_turn_have_started(rig):
    """All have run the barrier, but never at the same time: KEP-498 counts those that started."""
    async with rig.manager(groups=True):
        begin(rig, config={"timeoutAfterSeconds": 1})
        await rig.settle(0.5)
        first, second, *others = make_pods(rig)
        start(rig, *others, first)
        await rig.settle()
        start(rig, first, state="waiting", restartCount=1)
        await rig.settle()
        assert value(rig) is None
        start(rig, second)
        await rig.settle()

        assert value(rig).endswith(" 1\n")


async def test_what_happens_later_writes_nothing(rig):
    """Main containers start, containers restart, pods are replaced: the group was released."""
    async with rig.manager(groups=True):
        begin(rig)
        await rig.settle(0.5)
        names = make_pods(rig)
        start(rig, *names)
        await rig.settle()
        for state in ("waiting", "terminated"):
            start(rig, *names, state=state)
            await rig.settle()
        rig.world.delete("pods", names[0])
        await rig.settle(90)

        assert map_writes(rig) == ["started"]
        assert rig.condition(DONE)[0] == "True"


async def test_a_gathering_group_is_reported(rig):
    """A condition soon, and after a minute which pods are missing; a few writes in all."""
    async with rig.manager(groups=True):
        begin(rig, config={"timeoutAfterSeconds": 600})
        await rig.settle(0.5)
        *most, last = make_pods(rig)
        start(rig, *most)
        await rig.settle(2)
        assert rig.condition(WAITING) == ("True", keys.GROUP_STARTING_REASON)
        uid = rig.jobset()["metadata"]["uid"]
        assert value(rig, "waiting").startswith(f"{uid} 1 3 4 ")

        await rig.settle(1000)
        assert rig.condition(WAITING) == ("True", keys.GROUP_MISSING_REASON)
        told = [note for _, note, _ in rig.events(keys.GROUP_MISSING_REASON)]
        assert f"3 of 4 pods have started after 60 s; missing: {last} (not scheduled)" in told
        assert 0 < len(told) <= 5
        assert len(map_writes(rig)) <= 7

        start(rig, last)
        await rig.settle()
        assert rig.condition(DONE)[0] == "True"
        assert rig.condition(WAITING)[0] == "False"


async def test_a_config_map_that_is_deleted_comes_back(rig):
    """With its value, since the group has started."""
    async with rig.manager(groups=True):
        begin(rig)
        await rig.settle(0.5)
        start(rig, *make_pods(rig))
        await rig.settle()
        before = value(rig)
        rig.world.delete("configmaps", NAME)
        await rig.settle()

        assert value(rig) == before


async def test_a_value_that_is_lost_comes_back(rig):
    """Somebody emptied the ConfigMap."""
    async with rig.manager(groups=True):
        begin(rig)
        await rig.settle(0.5)
        start(rig, *make_pods(rig))
        await rig.settle()
        before = value(rig)
        rig.world.patch("configmaps", NAME, {"data": None})
        await rig.settle()

        assert value(rig) == before


async def test_a_config_map_of_someone_else_is_left_alone(rig):
    """The user is told; once it is gone, the group goes on."""
    async with rig.manager(groups=True):
        labels = {keys.JOBSET_NAME: "test-js"}
        body = {"metadata": {"name": NAME, "namespace": "default", "labels": labels}}
        rig.world.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", **body})
        begin(rig)
        await rig.settle(0.5)
        start(rig, *make_pods(rig))
        await rig.settle()
        assert value(rig) is None
        assert len(rig.events(keys.GROUP_FOREIGN_REASON)) == 1

        rig.world.delete("configmaps", NAME)
        await rig.settle()
        assert value(rig).endswith(" 1\n")


async def test_a_config_map_of_someone_else_without_our_label(rig):
    """The cache does not show it; no Job is made that would wait for ever, and the user is told."""
    async with rig.manager(groups=True):
        body = {"metadata": {"name": NAME, "namespace": "default"}, "data": {"mine": "x"}}
        rig.world.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", **body})
        begin(rig)
        await rig.settle()
        assert rig.jobs() == {}
        assert rig.world.get("configmaps", NAME)["data"] == {"mine": "x"}
        ((_, told, _),) = rig.events(keys.GROUP_FOREIGN_REASON)
        assert NAME in told

        rig.world.delete("configmaps", NAME)
        await rig.settle(60)
        start(rig, *make_pods(rig))
        await rig.settle()
        assert value(rig).endswith(" 1\n")


async def test_what_a_jobset_of_the_same_name_left_behind(rig):
    """Its value lifts nothing, and nobody is bothered while the garbage collector is on its way."""
    owner = {"apiVersion": f"{keys.GROUP}/{keys.VERSION}", "kind": "JobSet", "name": "test-js",
             "uid": "gone", "controller": True}  # fmt: skip
    labels = {keys.JOBSET_NAME: "test-js"}
    meta = {"name": NAME, "namespace": "default", "labels": labels, "ownerReferences": [owner]}
    data = {"started": "gone 7\n"}
    rig.world.garbage_collect = False
    rig.world.create(
        "configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    )
    async with rig.manager(groups=True):
        begin(rig)
        await rig.settle(0.5)
        start(rig, *make_pods(rig))
        await rig.settle()
        assert value(rig) == "gone 7\n"
        assert rig.events(keys.GROUP_FOREIGN_REASON) == []

        rig.world.delete("configmaps", NAME)
        await rig.settle()
        assert value(rig) == f"{rig.jobset()['metadata']['uid']} 1\n"


async def test_a_restarted_group_waits_for_a_signal_of_its_own(rig):
    """The value of the attempt before stays until all pods of the new one have started."""
    async with rig.manager(groups=True):
        begin(rig, failurePolicy={"maxRestarts": 1})
        await rig.settle(0.5)
        start(rig, *make_pods(rig))
        await rig.settle()
        before = value(rig)
        rig.finish("test-js-w-0", "Failed", "BackoffLimitExceeded")
        await rig.settle()
        assert {"1"} == set(rig.jobs().values())
        *most, last = make_pods(rig)
        start(rig, *most)
        await rig.settle()
        assert value(rig) == before
        assert rig.condition(WAITING)[0] == "True"

        start(rig, last)
        await rig.settle()
        assert before.endswith(" 1\n")
        assert value(rig).endswith(" 2\n")


async def test_a_resumed_group_waits_for_a_signal_of_its_own(rig):
    """Nodes may be other ones by then."""
    async with rig.manager(groups=True):
        begin(rig)
        await rig.settle(0.5)
        names = make_pods(rig)
        start(rig, *names[:-1])
        await rig.settle()
        rig.change(suspend=True)
        await rig.settle()
        assert rig.condition(WAITING) == ("False", keys.GROUP_SUSPENDED_REASON)
        for name in names:
            rig.world.delete("pods", name)
        rig.change(suspend=False)
        await rig.settle()
        *most, last = make_pods(rig)
        start(rig, *most)
        await rig.settle()
        assert value(rig) is None

        start(rig, last)
        await rig.settle()
        assert value(rig).endswith(" 3\n")


async def test_a_new_manager_continues_where_the_old_one_ended(rig):
    """All that counts is in the cluster."""
    async with rig.manager(groups=True):
        begin(rig)
        await rig.settle(0.5)
        *most, last = make_pods(rig)
        start(rig, *most)
        await rig.settle()
    start(rig, last)
    async with rig.manager(groups=True):
        await rig.settle()
        assert value(rig).endswith(" 1\n")
    async with rig.manager(groups=True):
        await rig.settle()
    assert map_writes(rig) == ["started"]


async def test_a_group_that_is_no_group_any_more_continues(rig):
    """Taking the configuration out of the spec lets waiting pods go."""
    async with rig.manager(groups=True):
        begin(rig)
        await rig.settle(0.5)
        names = make_pods(rig)
        start(rig, names[0])
        await rig.settle()
        rig.change(groupSchedulingConfig=None)
        await rig.settle()

        assert value(rig).endswith(" 2\n")


async def test_jobs_that_were_made_before_the_group_do_not_count(rig):
    """Their pods have no barrier and run: a single Job that is made anew waits for its own pods."""
    policy = {"maxRestarts": 3, "rules": [{"name": "r", "action": "RestartJob"}]}
    async with rig.manager(groups=True):
        rig.create(replicated_job("w", 2, parallelism=2), failurePolicy=policy)
        await rig.settle(0.5)
        rig.run_pods(2)
        rig.change(groupSchedulingConfig={})
        await rig.settle()
        for pod in ("test-js-w-0-0", "test-js-w-0-1"):
            rig.world.delete("pods", pod)
        rig.finish("test-js-w-0", "Failed")
        await rig.settle()
        first, last = make_pods(rig)
        start(rig, first)
        await rig.settle()
        assert value(rig) is None

        start(rig, last)
        await rig.settle()
        assert value(rig).endswith(" 3\n")
        assert rig.condition(DONE) == ("True", keys.GROUP_STARTED_REASON)


async def test_a_group_of_some_waits_for_those_alone(rig):
    """The other ReplicatedJob has nothing to do with it."""
    async with rig.manager(groups=True):
        config = {"targetReplicatedJobs": ["w"]}
        begin(rig, replicated_job("w", 2), replicated_job("x", 3), config=config)
        await rig.settle(0.5)
        make_pods(rig)
        start(rig, "test-js-w-0-0", "test-js-w-1-0")
        await rig.settle()

        assert value(rig).endswith(" 1\n")


async def test_the_end_of_a_jobset_ends_the_wait(rig):
    """A JobSet that has failed releases nobody."""
    async with rig.manager(groups=True):
        begin(rig)
        await rig.settle(0.5)
        start(rig, *make_pods(rig)[:-1])
        await rig.settle()
        rig.finish("test-js-w-0", "Failed")
        await rig.settle(100)

        assert value(rig) is None
        assert rig.events(keys.GROUP_MISSING_REASON) == []
        assert rig.condition(WAITING) == ("False", keys.GROUP_FINISHED_REASON)


async def test_a_conflict_is_settled_by_reading_again(rig):
    """Someone else wrote the ConfigMap while its watch is silent."""
    async with rig.manager(groups=True):
        begin(rig)
        await rig.settle(0.5)
        *most, last = make_pods(rig)
        start(rig, *most)
        await rig.settle()
        rule = rig.faults.stall(verb="watch", resource="configmaps")
        rig.world.patch("configmaps", NAME, {"metadata": {"labels": {"x": "y"}}})
        start(rig, last)
        await rig.settle()
        assert value(rig).endswith(" 1\n")
        rule.lift()
        await rig.settle()

        assert value(rig).endswith(" 1\n")
        assert map_writes(rig).count("started") <= 3  # those that were refused count as well


@pytest.mark.parametrize("code", [None, 403, 500])
async def test_roles_come_before_the_config_map(rig, code):
    """It is the sign that they are there; where they are forbidden, the group does without."""
    for cls in (Role, RoleBinding):
        rig.world.register(cls)
    async with rig.manager(groups=True, group_rbac=True):
        if code is not None:
            rig.faults.status(code, resource="roles", count=3)
        begin(rig)
        await rig.settle()

        made = [(resource, verb) for verb, resource, _ in rig.writes("create")]
        assert made.count(("jobs", "create")) == 2
        first = made.index(("jobs", "create"))
        assert {"roles", "rolebindings", "configmaps"} <= {what for what, _ in made[:first]}
        there = rig.world.get("roles", NAME) is not None
        assert there == (code != 403)
        told = rig.events(keys.GROUP_CREATION_FAILED_REASON)
        assert bool(told) == (code is not None)


async def test_a_role_binding_is_tried_until_its_role_is_known(rig):
    """The API server that checks it may not have heard of the Role yet."""
    for cls in (Role, RoleBinding):
        rig.world.register(cls)
    async with rig.manager(groups=True, group_rbac=True):
        rig.faults.status(404, resource="rolebindings", count=3)
        begin(rig)
        await rig.settle()

        assert rig.world.get("rolebindings", NAME) is not None
        assert rig.events(keys.GROUP_CREATION_FAILED_REASON) == []
