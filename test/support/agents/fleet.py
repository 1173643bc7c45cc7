"""Many agents in one process, on the real agent core, with a real API server without nodes.

The Job controller creates the pods; they do not run. Each ``SimulatedAgent`` is the agent's own
decision core with events of one shared watch of the JobSet, and a restart of its pod is a new core,
like a restarted container. At every lift it is checked that no pod of the group is behind the epoch
that starts.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

from jobsetpy import aio
from jobsetpy.agent.protocol.barrier import Barrier, Lift, PatchEpoch, Restart
from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.client import Client
from support import patience
from support.cluster.follow import following
from support.cluster.json_api import insist
from support.cluster.objects import in_place_jobset
from support.restarts.epoch_reports import pod_names


class SimulatedAgent:
    """The agent of a pod: its core and its stored epoch."""

    def __init__(self, pod: str) -> None:
        self.pod = pod
        self.barrier = Barrier()
        self.stored = 0
        self.lives = 1


class Fleet:
    """All agents of a JobSet.

    Args:
        client: a client that reaches the API server directly.
        namespace, name: the JobSet.
    """

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self.client = client
        self.namespace = namespace
        self.name = name
        self.agents: dict[str, SimulatedAgent] = {}
        self.violations: list[str] = []
        self.status: tuple[int, int] = (0, 0)
        self.history: list[tuple[int, int]] = []
        self.uid = ""
        self.news = patience.News()
        self._tasks: aio.Supervisor | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def serving(
        cls, client: Client, namespace: str, jobs: int, pods: int
    ) -> AsyncIterator[Fleet]:
        """Create the JobSet ``gang``, and serve an agent for each of its pods within the block."""
        await client.create(JobSet, namespace, in_place_jobset("gang", jobs=jobs, pods=pods))
        fleet = cls(client, namespace, "gang")
        # The Job controller may still be in a back-off from the API server's last crash.
        names = await pod_names(client, namespace, jobs * pods, 120)
        fleet.agents = {name: SimulatedAgent(name) for name in names}
        scope = {"namespace": namespace, "field_selector": f"metadata.name={fleet.name}"}
        async with (
            aio.supervise() as fleet._tasks,
            following(client, JobSet, fleet._see, **scope),
        ):
            yield fleet

    def fail(self, pod: str) -> None:
        """Fail the pod's worker: the kubelet restarts its containers, agent first."""
        self._restart(self.agents[pod])

    def lifted(self, epoch: int) -> int:
        """Return the number of workers that run at ``epoch``."""
        return sum(a.barrier.lifted and a.barrier.epoch == epoch for a in self.agents.values())

    async def wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until a condition of the fleet holds."""
        try:
            await self.news.until(condition, timeout_s)
        except TimeoutError:
            epochs = sorted(a.stored for a in self.agents.values())
            raise AssertionError(
                f"waited {timeout_s} s in vain for {what}: (synced, deprecated) is {self.status}, "
                f"stored epochs {epochs[0]}..{epochs[-1]}"
            ) from None

    def _see(self, jobset: JobSet, gone: bool) -> None:
        if gone:
            return
        status = (jobset.status.synced_epoch, jobset.status.deprecated_epoch)
        self.uid = jobset.metadata.uid
        if not self.history or self.history[-1] != status:
            self.history.append(status)
        if status[0] < self.status[0] or status[1] < self.status[1]:
            self.violations.append(f"status went back from {self.status} to {status}")
        self.status = status
        for agent in self.agents.values():
            self._act(agent, agent.barrier.observe(self.uid, *status))
        self.news.set()

    def _act(self, agent: SimulatedAgent, actions: list) -> None:
        for action in actions:
            match action:
                case PatchEpoch(epoch):
                    self._start(self._store(agent, agent.lives, epoch))
                case Lift(epoch):
                    behind = [a.pod for a in self.agents.values() if a.stored < epoch]
                    if behind:
                        self.violations.append(f"{agent.pod} lifts {epoch}, behind: {behind}")
                case Restart():
                    self._restart(agent)
                case _:
                    self.violations.append(f"unexpected: {action}")

    def _restart(self, agent: SimulatedAgent) -> None:
        agent.barrier = Barrier()
        agent.lives += 1
        self._start(self._join(agent, agent.lives))

    def _start(self, coro) -> None:
        assert self._tasks is not None
        self._tasks.start(coro, name="agent")

    async def _join(self, agent: SimulatedAgent, life: int) -> None:
        """Read the JobSet consistently, as a new agent does."""
        read = functools.partial(self.client.get, JobSet, self.namespace, self.name)
        jobset = await self._insist(agent, life, read)
        if jobset is not None and agent.lives == life:
            status, uid = jobset.status, jobset.metadata.uid
            seen = agent.barrier.observe(uid, status.synced_epoch, status.deprecated_epoch)
            self._act(agent, seen)

    async def _store(self, agent: SimulatedAgent, life: int, epoch: int) -> None:
        body = {"metadata": {"annotations": {keys.EPOCH_ANNOTATION: str(epoch)}}}
        patch = functools.partial(
            self.client.merge_patch, ChildPod, self.namespace, agent.pod, body
        )
        if await self._insist(agent, life, patch) is not None:
            agent.stored = max(agent.stored, epoch)
            self.news.set()

    @staticmethod
    async def _insist(agent: SimulatedAgent, life: int, request: Callable[..., Any]) -> Any:
        limit_s = patience.scaled(10)
        return await insist(
            request, wanted=lambda: agent.lives == life, unless=(), timeout_s=limit_s
        )
