"""Life cycle of a group that restarts in place, with a real API server and Job controller.

The manager is a process of its own; the test simulates the kubelet and the agents.
"""

import asyncio
import contextlib
import functools
import re
from datetime import UTC, datetime

import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import to_json
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from support import patience
from support.cluster.json_api import StoredJobSet
from support.cluster.manager_process import configured, own_manager
from support.cluster.objects import in_place_jobset
from support.restarts.epoch_reports import report_epoch

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(180)]

RULES = [
    {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0, 20]}},
]
FAIL_ON_20 = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [20]}}
AT = "2026-01-01T00:00:00Z"
RUNNING = {"running": {"startedAt": AT}}


def ended(code):
    """A container state; a time is null where the kubelet does not know it."""
    return {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": AT}}


class Group(StoredJobSet):
    """A JobSet with simulated kubelets and agents."""

    async def epochs(self, synced, deprecated):
        """Wait until the status has both epochs; return it."""
        wanted = (synced, deprecated)
        return await self.reaches(lambda s: (s.synced_epoch, s.deprecated_epoch) == wanted and s)

    async def pods(self, count):
        """Return the names of the pods that neither leave nor have failed, once there are ``count``."""
        names = []

        async def there():
            pods = (await self.client.list_page(Pod, self.namespace)).items
            names[:] = [
                pod.metadata.name
                for pod in pods
                if pod.metadata.deletion_timestamp is None and pod.status.phase != "Failed"
            ]
            return len(names) == count

        await patience.eventually(there, 30)
        return names

    async def show(self, name, state, restarts=0, phase="Running"):
        """Set the state of a worker, in place of the kubelet."""
        one = {"name": "worker", "state": state, "restartCount": restarts, "ready": False,
               "image": "x", "imageID": "",
               "lastState": {"terminated": {"exitCode": 137, "finishedAt": None}}}  # fmt: skip
        status = {"phase": phase, "containerStatuses": [one]}
        body = {"status": status}
        await self.client.merge_patch(Pod, self.namespace, name, body, subresource="status")

    async def report(self, name, epoch):
        """Report an epoch, in place of the pod's agent."""
        await report_epoch(self.client, self.namespace, epoch, name)

    async def run(self, names, epoch):
        """Report an epoch for all pods, and run their workers."""
        for name in names:
            await self.report(name, epoch)
        await self.reaches_epoch(epoch)
        for name in names:
            await self.show(name, RUNNING, restarts=epoch)

    async def uncounted(self):
        """Return the number of epochs that were not charged, and the recorded size."""
        record = (await self.jobset()).status.in_place_restart
        return record.uncounted_epochs, record.pods


@contextlib.asynccontextmanager
async def run_group(cluster, client, namespace, tmp_path, **settings):
    """A group of four pods whose workers run at epoch 1."""
    body = in_place_jobset("life", jobs=2, pods=2, **settings)
    spec = body["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec["template"]["spec"]["containers"][0]["restartPolicyRules"] = RULES
    spec["template"]["spec"]["containers"][0]["restartPolicy"] = "Never"
    spec["podFailurePolicy"] = {"rules": [FAIL_ON_20]}
    flags = configured(tmp_path / "config.yaml", inPlaceRestart={"stalledAfter": "3s"})
    one = Group(client, namespace, "life")
    async with one.deleted(), own_manager(client, cluster.kubeconfig, tmp_path, *flags) as manager:
        await client.create(JobSet, namespace, body)
        await one.run(await one.pods(4), 1)
        yield one, manager


@pytest.fixture
def group(cluster, client, namespace, tmp_path):
    """Function that runs a group within a block; see ``run_group``."""
    return functools.partial(run_group, cluster, client, namespace, tmp_path)


async def conditions(one):
    """Return status, reason and message of the conditions, by type."""
    found = (await one.jobset()).status.conditions
    return {c.type: (c.status, c.reason, c.message) for c in found}


async def test_group_restarts_until_its_budget_is_spent(group, client, namespace):
    """Failures and a deletion restart it and count; suspension, resizing and recreation do not.

    The budget of three is spent by two restarts in place and one of all Jobs.
    """
    async with group(max_restarts=3) as (one, _):
        names = await one.pods(4)
        # A worker fails, with its own exit code.
        await one.show(names[0], ended(7), restarts=1)
        await one.epochs(1, 1)
        status, reason, message = (await conditions(one))["RestartingInPlace"]
        assert (status, reason) == ("True", keys.CONTAINER_FAILED_REASON)
        assert f"pod {names[0]!r}, container 'worker' exited with 7 (Error)" in message
        for name in names:
            await one.show(name, ended(137), restarts=1)
        await one.run(names, 2)
        assert (await conditions(one))["RestartingInPlace"][0] == "False"
        assert await one.uncounted() == (0, 4)

        # A pod is deleted: the others do not wait for its replacement.
        await client.delete(Pod, namespace, names[1])
        await one.epochs(2, 2)
        assert (await conditions(one))["RestartingInPlace"][1] == keys.POD_DELETED_REASON
        await one.run(await one.pods(4), 3)
        assert await one.uncounted() == (0, 4)

        # Suspension and resumption.
        await one.change({"spec": {"suspend": True}})
        await one.pods(0)
        await one.change({"spec": {"suspend": False}})
        await one.run(await one.pods(4), 4)
        assert await one.uncounted() == (1, 4)

        # Growth and shrinking.
        for pods, epoch, expected in ((3, 5, (2, 6)), (2, 5, (2, 4))):
            items = (await raw(client, namespace))["spec"]["replicatedJobs"]
            items[0]["template"]["spec"] |= {"parallelism": pods, "completions": pods}
            await one.change({"spec": {"replicatedJobs": items}})
            names = await one.pods(2 * pods)
            if pods == 3:
                await one.run(names, epoch)
            size = expected[1]
            await one.reaches(lambda s, size=size: s.in_place_restart.pods == size)
            assert expected == await one.uncounted()
        await one.epochs(5, 4)

        # An unrecoverable failure: no restart in place; all Jobs are recreated.
        await one.show(names[0], ended(20), phase="Failed")
        await one.reaches(lambda s: s.restarts == 1)

        async def recreated():
            attempts = {
                job.metadata.labels[keys.RESTART_ATTEMPT]
                for job in (await client.list_page(Job, namespace)).items
            }
            return attempts == {"1"}

        await patience.eventually(recreated, 10, poll_s=0.1)
        await one.run(await one.pods(4), 6)
        assert await one.uncounted() == (3, 4)

        # Two restarts in place and one of all Jobs: the budget is spent.
        assert "Failed" not in await conditions(one)
        names = await one.pods(4)
        await one.show(names[0], ended(7), restarts=7)
        await asyncio.sleep(0.3)
        assert "Failed" not in await conditions(one)
        await one.report(names[0], 7)
        await one.reaches(lambda s: s.terminal_state == "Failed")
        assert (await conditions(one))["Failed"][1] == keys.REACHED_MAX_RESTARTS_REASON


async def raw(client, namespace):
    """Return the JobSet as plain JSON."""
    import msgspec

    jobset = await client.get(JobSet, namespace, "life")
    return msgspec.json.decode(msgspec.json.encode(to_json(jobset)))


async def test_next_manager_completes_a_restart(group):
    """It charges the restart once, and names the pods that block a barrier."""
    async with group() as (one, manager):
        names = await one.pods(4)
        await one.show(names[0], ended(7), restarts=1)
        await one.epochs(1, 1)
        await manager.kill()
        for name in names:
            await one.show(name, ended(137), restarts=1)
            await one.report(name, 2)
        await manager.start()
        await one.epochs(2, 1)
        for name in names:
            await one.show(name, RUNNING, restarts=2)

        assert await one.uncounted() == (0, 4)
        assert (await conditions(one))["RestartingInPlace"][0] == "False"
        text = manager.log.read_text()
        # Logged after the response to the write, which may be lost or arrive after the kill.
        assert len(re.findall("deprecated 1", text)) <= 1
        assert len(re.findall("synced 2", text)) <= 1

        await one.show(names[1], ended(7), restarts=2)
        await one.epochs(2, 2)
        for name in names[1:]:
            await one.report(name, 3)
        message = (await one.reaches_condition("BarrierStalled")).message
        assert message.startswith("1 of 4 pods has not come to epoch 3 for more than 3 s")
        assert f"pod {names[0]!r} (at epoch 2" in message
        await one.report(names[0], 3)
        await one.epochs(3, 2)
        assert (await conditions(one))["BarrierStalled"][0] == "False"


async def test_back_off_continues_under_the_next_manager(group):
    """The second restart in quick succession waits, reports it, and is lifted at its time."""
    async with group(backoff="4s") as (one, manager):
        names = await one.pods(4)
        await one.show(names[0], ended(7), restarts=1)
        await one.epochs(1, 1)
        await one.run(names, 2)
        assert (await one.jobset()).status.restart_pacing.not_before is None

        await one.report(names[1], 3)
        status = await one.epochs(2, 2)
        due = status.restart_pacing.not_before
        message = (await conditions(one))["RestartingInPlace"][2]
        assert "; waits 4 s before the next start: 1 restart in " in message
        for name in names:
            await one.report(name, 3)
        await manager.kill()
        await manager.start()
        await one.epochs(3, 2)

        now = datetime.now(UTC)  # the managers' clock, since they run on this machine
        assert due <= now
        assert (await one.jobset()).status.restart_pacing.series == 2
