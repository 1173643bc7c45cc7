"""Metrics of tasks and cached objects of a process."""

import asyncio

from jobsetpy import aio
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.informers import InformerCache
from jobsetpy.observability import metrics
from jobsetpy.testing import RecordingClient


async def test_tasks_are_counted_when_scraped():
    """The gauge is the number of this loop's tasks that have not ended."""
    before = metrics.REGISTRY.get_sample_value("asyncio_tasks")
    async with aio.supervise() as tasks:
        for _ in range(3):
            tasks.start(asyncio.Event().wait(), name="waits")
        during = metrics.REGISTRY.get_sample_value("asyncio_tasks")

    assert during == before + 3
    assert metrics.REGISTRY.get_sample_value("asyncio_tasks") == before


async def test_tasks_are_0_outside_of_a_loop():
    """A scrape in a thread gets 0 instead of an error."""
    value = await asyncio.to_thread(metrics.REGISTRY.get_sample_value, "asyncio_tasks")

    assert value == 0


def test_cached_objects_are_counted_while_the_cache_exists():
    """Caches of the same kind add up, and ended caches are removed."""
    cache = InformerCache(RecordingClient())
    cache.informer(Pod)
    cache.informer(Pod, namespace="a")
    cache.informer(Job)

    def shown(kind):
        return metrics.REGISTRY.get_sample_value("informer_objects", {"kind": kind})

    assert cache.sizes() == {"Pod": 0, "Job": 0}
    with metrics.cache_sizes(cache.sizes), metrics.cache_sizes(lambda: {"Pod": 2}):
        assert shown("Pod") == 2
        assert shown("Job") == 0
    assert shown("Pod") is None
