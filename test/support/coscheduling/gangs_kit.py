"""A cluster's pods as they are bound, and a coscheduler to kill, for tests of gangs."""

import asyncio
import contextlib

from jobsetpy.api.core import Node
from jobsetpy.errors import AlreadyExistsError, JobSetPyError
from support.cluster.json_api import send
from support.coscheduling.coscheduler_process import CoschedulerProcess
from support.coscheduling.gangs import Binds, create_all, delete_all, make_node, pod_body
from support.faults.tcp_proxy import TcpProxy
from support.patience import eventually

FOREIGN = "gangs.example/not-yet"
LIMIT_S = 60.0


class Gangs:
    """Nodes, pods and a coscheduler, which are removed at the end."""

    def __init__(self, cluster, site, client, log, arguments, given):
        self.cluster = cluster
        self.site = site
        self.client = client
        self.log = log
        self.binds = Binds()
        self.minimum = {}
        self.last = {}
        self._nodes = []
        self.process = CoschedulerProcess(
            cluster.kubeconfig, log, site, *arguments, metrics=True, **given
        )

    @contextlib.asynccontextmanager
    async def running(self, *, start=True):
        """Run the coscheduler and follow pods."""
        async with self.binds.watching(self.client):
            try:
                if start:
                    await self.process.start()
                yield self
            except BaseException as error:
                end = self.log.read_text()[-4000:] if self.log.exists() else ""
                error.add_note(f"the coscheduler's log:\n{end}")
                raise
            finally:
                await self._clear()
                await self.process.stop()

    async def _clear(self):
        await delete_all(self.client)
        await self.binds.wait(lambda: not self.binds.there)
        for name in self._nodes:
            with contextlib.suppress(JobSetPyError):
                await self.client.delete(Node, "", name)

    # -- objects ------------------------------------------------------------------------------

    async def node(self, name, cpu, **labels):
        """Create a node with capacity for a number of pods of one CPU."""
        self._nodes.append(name)
        await make_node(self.client, name, cpu, **labels)

    def bodies(self, group, size, minimum=None, **pod):
        """Return the pods of a gang."""
        self.minimum[group] = minimum or size
        return [
            pod_body(f"{group}-{at}", group=group, minimum=minimum or size, **pod)
            for at in range(size)
        ]

    async def create(self, *groups):
        """Create pods of gangs in turn, so that they interleave."""
        longest = max(map(len, groups))
        turns = [group[at] for at in range(longest) for group in groups if at < len(group)]
        await create_all(self.client, turns, at_once=4)

    async def waiting_group(self, group, size, **pod):
        """Create a gang that is held: one of its pods names a scheduler that does not run."""
        bodies = self.bodies(group, size, **pod)
        bodies[-1]["spec"]["schedulerName"] = "none"
        self.last[group] = pod
        await self.create(bodies)
        await self.holds(size - 1)

    async def let_go(self, group):
        """Create one more pod, which completes the gang."""
        size = self.minimum[group]
        last = pod_body(f"{group}-{size}", group=group, minimum=size, **self.last[group])
        await self.create([last])

    async def delete(self, group):
        """Delete a gang's pods and wait for their end."""
        await delete_all(self.client, group)
        await self.binds.wait(lambda: self.binds.counts(group) == [0], LIMIT_S)

    async def priority(self, name, value):
        """Create a priority class."""
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        body = {**kind, "metadata": {"name": name}, "value": value}
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        with contextlib.suppress(AlreadyExistsError):
            await send(self.client, "POST", path, body)

    # -- observations -------------------------------------------------------------------------

    async def holds(self, count):
        """Wait until the coscheduler holds a number of binds."""
        await eventually(lambda: self.metric("jobset_coscheduler_held_binds") == count, LIMIT_S, poll_s=0.1)  # fmt: skip

    def metric(self, series):
        """Return a metric of the coscheduler; 0 without a value, -1 without an answer."""
        try:
            return self.process.scrape().get(series, 0.0)
        except OSError:
            return -1.0

    async def bound(self, *groups, limit_s=LIMIT_S):
        """Wait until all of these gangs are bound, up to their minimum."""

        def there():
            return all(self.binds.counts(each)[0] >= self.minimum[each] for each in groups)

        await self.binds.wait(there, limit_s)

    def some_group(self, groups):
        """Return a gang that is bound up to its minimum; ``None`` if there is none."""
        for group in groups:
            if self.binds.counts(group)[0] >= self.minimum[group]:
                return group
        return None

    def in_part(self):
        """Return gangs that are bound in part."""
        counts = {group: self.binds.counts(group)[0] for group in self.minimum}
        return {group for group, count in counts.items() if 0 < count < self.minimum[group]}

    async def nothing_changes(self, seconds):
        """Let some time pass; check that the same pods exist afterwards, and the same are bound."""
        before = (dict(self.binds.there), set(self.binds.bound))
        await asyncio.sleep(seconds)
        assert (self.binds.there, set(self.binds.bound)) == before


class Front(TcpProxy):
    """Proxy at the address that the scheduler has for the coscheduler; leads to one of several."""

    def __init__(self, port):
        super().__init__("127.0.0.1", 0, listen=port)

    @property
    def target(self):
        """The port that connections lead to."""
        return self._target[1]

    @target.setter
    def target(self, port):
        self.retarget("127.0.0.1", port)
