"""The reconciler of startup groups in a manager, on a cluster in memory and in virtual time."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.execution.kinds import Role, RoleBinding
from support.jobsets import replicated_job

pytestmark = pytest.mark.looptime

NAME = "test-js-group-scheduling"
WAITING, DONE = keys.GROUP_IN_PROGRESS_CONDITION, keys.GROUP_COMPLETED_CONDITION


async def begin(rig, *jobs, config=None, **spec):
    """Create a startup group, by default of two Jobs of two pods; return its pods' names."""
    jobs = jobs or (replicated_job("w", 2, parallelism=2),)
    rig.create(*jobs, groupSchedulingConfig=config or {}, **spec)
    await rig.settle(0.5)
    return rig.make_pods()


def start(rig, *names, state="running", **status):
    """Run the barrier of pods as the kubelet does."""
    status |= {"name": keys.GROUP_INIT_CONTAINER, "state": {state: {}}}
    for name in names:
        rig.world.set_status("pods", name, initContainerStatuses=[status])


def value(rig, key="started"):
    """Return a value of the ConfigMap."""
    return (rig.world.get("configmaps", NAME).get("data") or {}).get(key)


def map_writes(rig):
    """Return the keys that were written, in order."""
    found = rig.world.requests.matching("patch", "configmaps")
    return [key for request in found for key in request.json["data"]]


async def test_last_start_releases_the_group(rig):
    """With one write, which names JobSet and attempt; the condition follows."""
    async with rig.manager(groups=True):
        *most, last = await begin(rig)
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


async def test_incomplete_group_is_reported(rig):
    """A condition comes soon, missing pods after a minute, in a few writes."""
    async with rig.manager(groups=True):
        *most, last = await begin(rig, config={"timeoutAfterSeconds": 600})
        start(rig, *most)
        await rig.settle(2)
        assert rig.condition(WAITING) == ("True", keys.GROUP_STARTING_REASON)
        uid = rig.jobset()["metadata"]["uid"]
        assert value(rig, "waiting").startswith(f"{uid} 1 3 4 ")

        await rig.settle(1000)
        assert rig.condition(WAITING) == ("True", keys.GROUP_MISSING_REASON)
        notes = [note for _, note, _ in rig.events(keys.GROUP_MISSING_REASON)]
        assert f"3 of 4 pods have started after 60 s; missing: {last} (not scheduled)" in notes
        assert 0 < len(notes) <= 5
        assert len(map_writes(rig)) <= 7

        start(rig, last)
        await rig.settle()
        assert rig.condition(DONE)[0] == "True"
        assert rig.condition(WAITING)[0] == "False"


@pytest.mark.parametrize("deleted", [True, False], ids=["ConfigMap", "value"])
async def test_lost_value_is_written_again(rig, deleted):
    """The group has started."""
    async with rig.manager(groups=True):
        start(rig, *await begin(rig))
        await rig.settle()
        before = value(rig)
        if deleted:
            rig.world.delete("configmaps", NAME)
        else:
            rig.world.patch("configmaps", NAME, {"data": None})
        await rig.settle()

        assert value(rig) == before


async def test_no_job_is_created_when_the_config_map_of_another_owner_is_not_cached(rig):
    """The cache selects by label; pods would wait for ever, and the conflict is reported."""
    async with rig.manager(groups=True):
        body = {"metadata": {"name": NAME, "namespace": "default"}, "data": {"mine": "x"}}
        rig.world.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", **body})
        await begin(rig)
        await rig.settle()
        assert rig.jobs() == {}
        assert rig.world.get("configmaps", NAME)["data"] == {"mine": "x"}
        ((_, note, _),) = rig.events(keys.GROUP_FOREIGN_REASON)
        assert NAME in note

        rig.world.delete("configmaps", NAME)
        await rig.settle(60)
        start(rig, *rig.make_pods())
        await rig.settle()
        assert value(rig).endswith(" 1\n")


async def test_next_manager_releases_the_group(rig):
    """Its state is in the cluster."""
    async with rig.manager(groups=True):
        *most, last = await begin(rig)
        start(rig, *most)
        await rig.settle()
    start(rig, last)
    async with rig.manager(groups=True):
        await rig.settle()
        assert value(rig).endswith(" 1\n")
    async with rig.manager(groups=True):
        await rig.settle()
    assert map_writes(rig) == ["started"]


async def test_write_is_repeated_after_a_conflict(rig):
    """Another client changes the ConfigMap while its watch is silent."""
    async with rig.manager(groups=True):
        *most, last = await begin(rig)
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
        assert map_writes(rig).count("started") <= 3  # refused writes count as well


@pytest.mark.parametrize("code", [None, 403, 500])
async def test_roles_are_created_before_the_config_map(rig, code):
    """It is the sign that they exist; if they are forbidden, the group works without them."""
    for cls in (Role, RoleBinding):
        rig.world.register(cls)
    async with rig.manager(groups=True, group_rbac=True):
        if code is not None:
            rig.faults.status(code, resource="roles", count=3)
        await begin(rig)
        await rig.settle()

        made = [(resource, verb) for verb, resource, _ in rig.writes("create")]
        assert made.count(("jobs", "create")) == 2
        first = made.index(("jobs", "create"))
        assert {"roles", "rolebindings", "configmaps"} <= {resource for resource, _ in made[:first]}
        assert (rig.world.get("roles", NAME) is not None) == (code != 403)
        assert bool(rig.events(keys.GROUP_CREATION_FAILED_REASON)) == (code is not None)


async def test_creation_of_a_role_binding_is_repeated_until_its_role_is_known(rig):
    """The API server that checks it may not have the Role yet."""
    for cls in (Role, RoleBinding):
        rig.world.register(cls)
    async with rig.manager(groups=True, group_rbac=True):
        rig.faults.status(404, resource="rolebindings", count=3)
        await begin(rig)
        await rig.settle()

        assert rig.world.get("rolebindings", NAME) is not None
        assert rig.events(keys.GROUP_CREATION_FAILED_REASON) == []
