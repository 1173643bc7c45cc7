"""JobSets with agents of the Go project, under a whole manager in memory and in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from support.agents.attempt_agent import AttemptAgent, Step
from support.jobsets import replicated_job
from support.restarts.epoch_plans import policy
from support.restarts.managed_group import epoch_writes

pytestmark = pytest.mark.looptime


class Pods:
    """Pods of a JobSet: their agents, and which of them were restarted."""

    def __init__(self, rig, names):
        self.rig = rig
        self.agents = {name: AttemptAgent() for name in names}
        self.restarted = []

    async def run(self):
        """Let agents and manager continue until nothing happens."""
        for _ in range(20):
            steps = {name: self._step(name) for name in self.agents}
            await self.rig.settle(1)
            if set(steps.values()) == {Step.NOTHING}:
                return
        raise AssertionError(f"agents do not come to rest: {steps}")

    def _step(self, name):
        agent = self.agents[name]
        step = agent.hear(self.rig.jobset())
        if step is Step.REPORT:
            annotate(self.rig, name, agent)
        elif step is Step.EXIT:
            self.restart(name)
        return step

    def restart(self, name):
        """Restart all containers of the pod."""
        self.restarted.append(name)
        self.agents[name] = AttemptAgent()

    @property
    def attempts(self):
        """Attempts of the agents, each with True if their workers run."""
        return {(agent.attempt, agent.lifted) for agent in self.agents.values()}


async def created(rig, max_restarts=3, **fields):
    """Create a JobSet with two Jobs of two pods."""
    item = replicated_job("w", 2, parallelism=2)
    rig.create(item, failurePolicy=policy(max_restarts), **fields)
    await rig.settle()


async def started(rig, **fields):
    """Create a JobSet, and let its agents run."""
    await created(rig, **fields)
    pods = Pods(rig, rig.run_pods(2))
    await pods.run()
    return pods


def annotate(rig, name, agent):
    """Store the annotations of an agent."""
    rig.world.patch("pods", name, {"metadata": {"annotations": agent.annotations}})


async def test_all_workers_restart_in_place_when_one_fails(rig):
    """Each of both epochs is written once."""
    async with rig.manager():
        pods = await started(rig)
        assert pods.attempts == {(0, True)}
        rig.world.requests.clear()

        first = next(iter(pods.agents))
        pods.restart(first)
        await pods.run()
        assert pods.attempts == {(1, True)}
        assert sorted(pods.restarted) == sorted(pods.agents)
        assert rig.epochs() == (2, 1)
        assert rig.status()["currentInPlaceRestartAttempt"] == 1
        assert rig.status()["previousInPlaceRestartAttempt"] == 0
        assert [list(each) for each in epoch_writes(rig)] == [["deprecatedEpoch"], ["syncedEpoch"]]


@pytest.mark.parametrize("restarting", [False, True], ids=["running", "restarting"])
async def test_workers_keep_running_when_this_manager_replaces_the_go_controller(rig, restarting):
    """It continues from the stored attempts; a restart under way is completed."""

    def uids():
        return [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in rig.world.list("pods")]

    async with rig.manager(epochs=False):
        await created(rig, max_restarts=4)
    names = rig.run_pods(2)
    status = {"currentInPlaceRestartAttempt": 2, "previousInPlaceRestartAttempt": 1}
    pods = Pods(rig, names)
    for name, agent in pods.agents.items():
        agent.attempt, agent.lifted = 2, True
        annotate(rig, name, agent)
    if restarting:
        status["previousInPlaceRestartAttempt"] = 2
        agent = pods.agents[names[0]] = AttemptAgent()
        agent.attempt = 3
        annotate(rig, names[0], agent)
    rig.world.patch(JobSet, "test-js", {"status": status}, subresource="status")
    before = uids()

    async with rig.manager():
        await asyncio.sleep(120)
        await pods.run()
        assert pods.attempts == {(3 if restarting else 2, True)}
        assert sorted(pods.restarted) == (sorted(names[1:]) if restarting else [])
        assert rig.condition(keys.FAILED_CONDITION) is None
        assert uids() == before

        pods.restarted.clear()
        pods.restart(names[1])
        await pods.run()
        assert pods.attempts == {(4 if restarting else 3, True)}
