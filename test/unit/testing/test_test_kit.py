"""The test kit as users of the package have it: fixtures, virtual time, the served fake, faults."""

import asyncio
import os
import subprocess
import sys

import pytest

from jobsetpy import runtime as rt
from jobsetpy.testing import FakeApiServer, Select, VirtualTimeLoop


class Labeller:
    """Label every ConfigMap an hour after it was first seen."""

    def __init__(self, client, store, clock):
        self.client, self.store, self.clock, self.first = client, store, clock, {}

    async def reconcile(self, request):
        now = self.clock.monotonic()
        left = self.first.setdefault(request.key, now) + 3600 - now
        if left > 0:
            return rt.Result.requeue_after(left)
        change = {"metadata": {"labels": {"seen": "yes"}}}
        await self.client.merge_patch(rt.ConfigMap, *request.key, change)
        return rt.Result.done()


def setup(manager):
    objects = manager.informer(rt.ConfigMap, namespace="default")
    reconciler = Labeller(manager.client, objects.store, manager.clock)
    watches = [rt.Watch(objects, rt.enqueue_self, when=rt.created)]
    manager.add(rt.Controller(name="labeller", reconciler=reconciler, watches=watches))


def test_controller_that_waits_for_an_hour_is_tested_in_virtual_time(
    kube_world, run_manager, virtual_time
):
    """Faults are applied, too."""
    kube_world.create("configmaps", {"metadata": {"name": "a"}})
    which: Select = {"verb": "patch", "resource": "configmaps", "count": 2}
    fault = kube_world.faults.status(500, **which)

    def labels():
        return kube_world.get("configmaps", "a")["metadata"].get("labels")

    async def scenario():
        async with run_manager(setup):
            await asyncio.sleep(3599)
            before = labels()
            await asyncio.sleep(60)
            return before, labels(), asyncio.get_running_loop().time()

    before, after, passed = virtual_time.run(scenario())
    assert (before, after, fault.hits) == (None, {"seen": "yes"}, 2)
    assert 3659 <= passed < 3700


def test_error_of_a_manager_fails_its_test(kube_world, run_manager, virtual_time):
    """It is raised unchanged."""

    def failing(manager):
        manager.informer(rt.unstructured(rt.ResourceInfo("no.where", "v1", "None", "nones")))

    async def scenario():
        async with run_manager(failing):
            pass

    with pytest.raises(BaseException) as failed:
        virtual_time.run(scenario())
    assert isinstance(failed.value, TimeoutError | BaseExceptionGroup)


def test_virtual_time_waits_for_threads(virtual_time):
    """Timers fire in order, and timeouts agree with them."""

    async def scenario():
        seen = []
        assert await asyncio.to_thread(lambda: 5) == 5
        async with asyncio.TaskGroup() as group:
            for seconds in (300, 100, 200):

                async def wait(seconds=seconds):
                    await asyncio.sleep(seconds)
                    seen.append(seconds)

                group.create_task(wait())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.Event().wait()
        return seen, virtual_time.clock.monotonic()

    assert isinstance(VirtualTimeLoop, type)
    seen, now = virtual_time.run(scenario())
    assert seen == [100, 200, 300]
    assert now == pytest.approx(310, abs=1)


def test_served_fake_is_used_by_another_loop(fake_api_server):
    """Its client uses the kubeconfig, and the test creates objects in between."""

    async def scenario():
        client = await rt.connect(kubeconfig=str(fake_api_server.kubeconfig), environ={})
        try:
            await client.create(rt.ConfigMap, "default", {"metadata": {"name": "b"}})
            return [one.metadata.name async for one in rt.list_objects(client, rt.ConfigMap)]
        finally:
            await client.aclose()

    fake_api_server.call(FakeApiServer.create, "configmaps", {"metadata": {"name": "a"}})
    assert asyncio.run(scenario()) == ["a", "b"]
    assert fake_api_server.call(FakeApiServer.get, "configmaps", "b") is not None
    with pytest.raises(LookupError, match="no such kind"):
        fake_api_server.call(FakeApiServer.list, "nothings")


def test_pytest_plugin_imports_nothing(tmp_path):
    """An installed package changes no tests that do not use it."""
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n\ndef test_it():\n"
        "    heavy = {'jobsetpy.testing', 'jobsetpy.manager', 'aiohttp', 'msgspec', 'attrs'}\n"
        "    assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    options = ["-p", "jobsetpy.pytest_plugin", "-p", "no:cacheprovider", "-q", "-c", "/dev/null"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", tmp_path, tmp_path],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
