"""Events of the recorder as the real API server stores them."""

import asyncio

import pytest

from jobsetpy import aio
from jobsetpy.api.events import Event
from jobsetpy.api.jobset import JobSet
from jobsetpy.controller import EventLimits, EventRecorder
from jobsetpy.testing import make_jobset
from support.cluster.json_api import send
from support.patience import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(120)]


class Slow:
    """A client whose creations wait for ``go``."""

    def __init__(self, client) -> None:
        self.client = client
        self.go = asyncio.Event()

    async def create(self, *args, **options):
        await self.go.wait()
        return await self.client.create(*args, **options)

    async def merge_patch(self, *args, **options):
        return await self.client.merge_patch(*args, **options)


async def stored(client, namespace):
    """Return the events of a namespace as plain JSON."""
    return (await send(client, "GET", Event.RESOURCE.path(namespace)))["items"]


async def made(client, namespace, name):
    body = make_jobset(name, namespace).replicated_job("w").build()
    return await client.create(JobSet, namespace, body)


async def test_repeated_events_are_counted_and_floods_are_limited(client, namespace):
    """A hundred repetitions are one object with a count; of forty reasons, only the limit is stored."""
    calm, loud = await made(client, namespace, "calm"), await made(client, namespace, "loud")
    recorder = EventRecorder(
        client, component="t-events", limits=EventLimits(patch_every_s=0.2, burst=25)
    )
    async with aio.supervise() as tasks:
        running = tasks.start(recorder.run(), name="recorder")
        for number in range(100):
            recorder.event(calm, "Warning", "Repeated", f"attempt {number}")
        for number in range(40):
            recorder.event(loud, "Normal", f"Reason{number}", "message")

        async def settled():
            items = await stored(client, namespace)
            repeated = [item for item in items if item["regarding"]["name"] == "calm"]
            others = [item for item in items if item["regarding"]["name"] == "loud"]
            return (
                len(others) == 25
                and repeated
                and repeated[0].get("series", {}).get("count") == 100
                and repeated
            )

        (event,) = await eventually(settled, 60, poll_s=0.2)
        recorder.event(calm, "Warning", "Repeated", "later")

        async def counted():
            items = await stored(client, namespace)
            return any(item.get("series", {}).get("count") == 101 for item in items)

        await eventually(counted, 60, poll_s=0.2)
        running.cancel()

    assert event["note"] == "attempt 0"
    assert event["reportingController"] == "t-events"
    assert event["series"]["lastObservedTime"] >= event["eventTime"]
    assert len(await stored(client, namespace)) == 26


async def test_slow_api_server_does_not_block_the_recorder(client, namespace):
    """Recording returns immediately; events of that time are one object with a count."""
    jobset = await made(client, namespace, "slow")
    slow = Slow(client)
    recorder = EventRecorder(slow, component="t-slow")
    async with aio.supervise() as tasks:
        running = tasks.start(recorder.run(), name="recorder")
        for _ in range(1000):
            recorder.event(jobset, "Normal", "Happened", "again")
            await asyncio.sleep(0)  # one turn of the loop, without waiting
        assert await stored(client, namespace) == []
        slow.go.set()

        async def counted():
            items = await stored(client, namespace)
            return [item.get("series", {}).get("count") for item in items] == [1000]

        await eventually(counted, 60, poll_s=0.2)
        running.cancel()
