"""What the tests of gangs share: a cluster's pods as they are bound, and a coscheduler to kill."""

import asyncio
import contextlib
import json
import time

from jobsetpy.api.core import Node
from jobsetpy.client import HttpRequest
from jobsetpy.errors import AlreadyExistsError, JobSetPyError
from support.coscheduling.coscheduler_process import CoschedulerProcess
from support.coscheduling.gangs import Binds, create_all, delete_all, make_node, pod_body
from support.patience import eventually

FOREIGN = "gangs.example/not-yet"
LIMIT_S = 60.0


class Gangs:
    """Nodes, pods and a coscheduler; everything is gone at the end."""

    def __init__(self, cluster, site, client, log, arguments, given):
        self.cluster = cluster
        self.site = site
        self.client = client
        self.log = log
        self.binds = Binds()
        self.minimum = {}
        self.last = {}
        self.longest_partial = 0.0
        self._partial = {}
        self._nodes = []
        self.process = CoschedulerProcess(
            cluster.kubeconfig, log, site, *arguments, metrics=True, **given
        )

    @contextlib.asynccontextmanager
    async def running(self, *, start=True):
        """The coscheduler runs, and pods are followed."""
        async with self.binds.watching(self.client):
            self.binds.checks.append(self._look)
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
                await self.end(self.process)

    async def _clear(self):
        await delete_all(self.client)
        await self.binds.wait(lambda: not self.binds.there)
        for name in self._nodes:
            with contextlib.suppress(JobSetPyError):
                await self.client.delete(Node, "", name)

    @staticmethod
    async def end(process):
        """End a process that may have ended."""
        if process.process is not None:
            await process.stop()

    # -- what there is ------------------------------------------------------------------------

    async def node(self, name, cpu, **labels):
        """A node with room for so many pods of one CPU."""
        self._nodes.append(name)
        await make_node(self.client, name, cpu, **labels)

    def bodies(self, group, size, minimum=None, **pod):
        """Pods of a group, behind its gate."""
        self.minimum[group] = minimum or size
        return [
            pod_body(f"{group}-{at}", group=group, minimum=minimum or size, **pod)
            for at in range(size)
        ]

    async def create(self, *groups):
        """Create pods of groups, in turn so that they interleave."""
        longest = max(map(len, groups))
        turns = [group[at] for at in range(longest) for group in groups if at < len(group)]
        await create_all(self.client, turns, at_once=4)

    async def waiting_group(self, group, size, **pod):
        """A gang that is held: one of its pods names a scheduler that does not run.

        A gate of another controller would keep the whole gang behind its gates.
        """
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
        """Delete a group's pods, and see them go."""
        await delete_all(self.client, group)
        await self.binds.wait(lambda: self.binds.counts(group) == [0], LIMIT_S)

    async def priority(self, name, value):
        """A priority class."""
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        body = {**kind, "metadata": {"name": name}, "value": value}
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        with contextlib.suppress(AlreadyExistsError):
            await self.client.raw(
                HttpRequest(method="POST", path=path, body=json.dumps(body).encode())
            )

    # -- what is seen -------------------------------------------------------------------------

    async def holds(self, count):
        """Wait until the coscheduler holds so many binds."""
        await eventually(lambda: self.metric("jobset_coscheduler_held_binds") == count, LIMIT_S, poll_s=0.1)  # fmt: skip

    def metric(self, series):
        """A figure of the coscheduler's; 0 if it tells none now."""
        try:
            return self.process.scrape().get(series, 0.0)
        except OSError:
            return -1.0

    async def bound(self, *groups, limit_s=LIMIT_S):
        """Wait until all of these are bound, as far as they have to be."""

        def there():
            return all(self.binds.counts(each)[0] >= self.minimum[each] for each in groups)

        await self.binds.wait(there, limit_s)

    def some_group(self, groups):
        """One of these that is bound as far as it has to be; ``None`` if none is."""
        for group in groups:
            if self.binds.counts(group)[0] >= self.minimum[group]:
                return group
        return None

    def in_part(self):
        """Groups that are bound in part."""
        counts = {group: self.binds.counts(group)[0] for group in self.minimum}
        return {group for group, count in counts.items() if 0 < count < self.minimum[group]}

    def _look(self):
        now = time.monotonic()
        partial = self.in_part()
        for group in partial:
            began = self._partial.setdefault(group, now)
            self.longest_partial = max(self.longest_partial, now - began)
        for group in set(self._partial) - partial:
            del self._partial[group]

    def back_to_back(self):
        """Groups in the order their gates were lifted, each as often as it was begun."""
        order = sorted(self.binds.lifted.items(), key=lambda item: item[1])
        groups = [self.binds.group[name] for name, _ in order]
        groups = [group for group in groups if group in self.minimum]
        return [group for at, group in enumerate(groups) if at == 0 or groups[at - 1] != group]

    async def nothing_changes(self, seconds):
        """Let some time pass; the same pods are there afterwards, and the same are bound."""
        before = (dict(self.binds.there), set(self.binds.bound))
        await asyncio.sleep(seconds)
        assert (self.binds.there, set(self.binds.bound)) == before


class Front:
    """Stands where the scheduler looks for the coscheduler, and leads to one of several."""

    def __init__(self, port):
        self.port = port
        self.target = 0

    @contextlib.asynccontextmanager
    async def serving(self):
        """Within the block."""
        tasks = set()

        async def accept(reader, writer):
            tasks.add(asyncio.current_task())
            try:
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
            except OSError:
                writer.transport.abort()
                return
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(pump(reader, up_writer))
                    group.create_task(pump(up_reader, writer))
            finally:
                for each in (writer, up_writer):
                    each.transport.abort()
                tasks.discard(asyncio.current_task())

        async def pump(source, sink):
            try:
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            except OSError:
                pass
            sink.transport.abort()

        server = await asyncio.start_server(accept, "127.0.0.1", self.port, backlog=512)
        try:
            yield self
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
