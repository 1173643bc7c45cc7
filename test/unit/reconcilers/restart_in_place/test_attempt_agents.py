"""JobSets with agents of the Go project, under a whole manager in memory and in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.testing.jobsets import replicated_job
from support.agents.attempt_agent import AttemptAgent, Step

pytestmark = pytest.mark.looptime

POLICY = {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"}


class Pods:
    """The pods of a JobSet: their agents, and what became of them."""

    def __init__(self, rig, names):
        self.rig = rig
        self.agents = {name: AttemptAgent() for name in names}
        self.restarted = []

    async def run(self):
        """Let agents and manager go on until nothing happens any more."""
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
            self.rig.world.patch("pods", name, {"metadata": {"annotations": agent.annotations}})
        elif step is Step.EXIT:
            self.restart(name)
        return step

    def restart(self, name):
        """All containers of the pod are restarted."""
        self.restarted.append(name)
        self.agents[name] = AttemptAgent()

    @property
    def attempts(self):
        """What the agents are at, and whether their workers run."""
        return {(agent.attempt, agent.lifted) for agent in self.agents.values()}


def attempts(rig):
    """The status's attempts."""
    status = rig.status()
    return (
        status.get("currentInPlaceRestartAttempt"),
        status.get("previousInPlaceRestartAttempt"),
    )


async def started(rig, **spec):
    rig.create(replicated_job("w", 2, parallelism=2), **{"failurePolicy": POLICY, **spec})
    await rig.settle()
    pods = Pods(rig, rig.run_pods(2))
    await pods.run()
    return pods


async def test_a_life(rig):
    """Workers start, a failed one restarts all others in place, and each is written once."""
    async with rig.manager():
        pods = await started(rig)
        assert {(0, True)} == pods.attempts
        rig.world.requests.clear()

        first = next(iter(pods.agents))
        pods.restart(first)
        await pods.run()
        assert {(1, True)} == pods.attempts
        assert sorted(pods.agents) == sorted(pods.restarted)
        assert (rig.epochs(), attempts(rig)) == ((2, 1), (1, 0))
        written = [[key for key in body if "Epoch" in key] for body in rig.status_writes()]
        assert [each for each in written if each] == [["deprecatedEpoch"], ["syncedEpoch"]]


async def test_the_budget(rig):
    """One restart more than allowed ends the JobSet."""
    async with rig.manager():
        pods = await started(rig)
        for _ in range(4):
            assert None is rig.condition(keys.FAILED_CONDITION)
            pods.restart(next(iter(pods.agents)))
            await pods.run()
        assert rig.condition(keys.FAILED_CONDITION) == ("True", keys.REACHED_MAX_RESTARTS_REASON)


@pytest.mark.parametrize("restarting", [False, True], ids=["running", "restarting"])
async def test_an_upgrade(rig, restarting):
    """What the Go project's controller has stored goes on: no worker ends that would not have."""
    async with rig.manager(epochs=False):
        rig.create(
            replicated_job("w", 2, parallelism=2), failurePolicy={**POLICY, "maxRestarts": 4}
        )
        await rig.settle()
    names = rig.run_pods(2)
    status = {"currentInPlaceRestartAttempt": 2, "previousInPlaceRestartAttempt": 1}
    pods = Pods(rig, names)
    for name, agent in pods.agents.items():
        agent.attempt, agent.lifted = 2, True
        rig.world.patch("pods", name, {"metadata": {"annotations": agent.annotations}})
    if restarting:
        status["previousInPlaceRestartAttempt"] = 2
        pods.agents[names[0]] = AttemptAgent()
        pods.agents[names[0]].attempt = 3
        annotations = {"annotations": pods.agents[names[0]].annotations}
        rig.world.patch("pods", names[0], {"metadata": annotations})
    rig.world.patch(JobSet, "test-js", {"status": status}, subresource="status")
    before = [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in rig.world.list("pods")]

    async with rig.manager():
        await asyncio.sleep(120)
        await pods.run()
        assert {(3 if restarting else 2, True)} == pods.attempts
        assert (sorted(names[1:]) if restarting else []) == sorted(pods.restarted)
        assert None is rig.condition(keys.FAILED_CONDITION)
        after = [
            (pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in rig.world.list("pods")
        ]
        assert before == after

        pods.restarted.clear()
        pods.restart(names[1])
        await pods.run()
        assert {(4 if restarting else 3, True)} == pods.attempts


async def test_bypassed(rig):
    """Agents that are told to lift their barriers at once are never waited for, nor missed."""
    async with rig.manager():
        rig.create(replicated_job("w", 2, parallelism=2), failurePolicy=POLICY)
        annotation = {"annotations": {keys.DISABLE_IN_PLACE_ANNOTATION: "true"}}
        rig.world.patch(JobSet, "test-js", {"metadata": annotation})
        await rig.settle()
        pods = Pods(rig, rig.run_pods(2))
        await pods.run()
        await asyncio.sleep(600)
        assert {(None, True)} == pods.attempts
        assert rig.epochs() == (0, 0)
        assert None is rig.condition(keys.BARRIER_STALLED_CONDITION)
