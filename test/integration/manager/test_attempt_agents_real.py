"""A JobSet with the Go project's agents, upgraded in place on a real API server.

The manager is a process of its own; the test simulates the kubelet and executes the agents' steps.
"""

import pytest

from jobsetpy.api._wire import to_json
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import ChildPod, JobSet
from support import patience
from support.agents.attempt_agent import AttemptAgent, Step
from support.cluster.json_api import StoredJobSet
from support.cluster.manager_process import own_manager
from support.cluster.objects import in_place_jobset

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(120)]


class Group(StoredJobSet):
    """The pods of the JobSet and their agents, by name of the pod."""

    def __init__(self, client, namespace):
        super().__init__(client, namespace, "life")
        self.agents = {}
        self.restarted = []

    async def pods(self):
        """Return names and UIDs of the pods."""
        page = await self.client.list_page(Pod, self.namespace)
        return {pod.metadata.name: pod.metadata.uid for pod in page.items}

    async def report(self, name):
        """Report as the agent does, by server-side apply of this annotation."""
        body = {"metadata": {"annotations": self.agents[name].annotations}}
        owner = "in-place-restart-agent"
        await self.client.apply(ChildPod, self.namespace, name, body, owner=owner)

    async def until_all_run(self, attempt):
        """Execute the agents' steps until all workers run at an attempt."""

        async def done():
            jobset = to_json(await self.jobset())
            for name, agent in list(self.agents.items()):
                step = agent.hear(jobset)
                if step is Step.REPORT:
                    await self.report(name)
                elif step is Step.EXIT:
                    self.restart(name)
            return {(attempt, True)} == {(a.attempt, a.lifted) for a in self.agents.values()}

        await patience.eventually(done, 20, poll_s=0.05)

    def restart(self, name):
        """Restart the pod's containers, in place of the kubelet."""
        self.restarted.append(name)
        self.agents[name] = AttemptAgent()


async def test_no_worker_restarts_when_the_manager_takes_over(cluster, client, namespace, tmp_path):
    """Stored attempts continue as epochs; the next failure restarts the group once, in place."""
    group = Group(client, namespace)
    await client.create(JobSet, namespace, in_place_jobset("life", jobs=2, pods=2, max_restarts=3))
    async with own_manager(client, cluster.kubeconfig, tmp_path) as manager:

        async def created():
            return len(await group.pods()) == 4

        await patience.eventually(created, 30, poll_s=0.1)
        await manager.stop()

        # The state after two restarts by the Go project's controller.
        for name in await group.pods():
            agent = group.agents[name] = AttemptAgent()
            agent.attempt, agent.lifted = 2, True
            await group.report(name)
        stored = {"currentInPlaceRestartAttempt": 2, "previousInPlaceRestartAttempt": 1}
        body = {"status": stored}
        await client.merge_patch(JobSet, namespace, "life", body, subresource="status")
        pods = await group.pods()

        await manager.start()
        await group.reaches_epoch(3)
        await group.until_all_run(2)
        assert group.restarted == []

        group.restart(next(iter(pods)))
        await group.until_all_run(3)
        assert sorted(pods) == sorted(group.restarted)
        assert pods == await group.pods()
        status = (await group.jobset()).status
        assert (status.synced_epoch, status.deprecated_epoch) == (4, 3)
        assert status.in_place_restart.restarts == 3
        assert not status.terminal_state
