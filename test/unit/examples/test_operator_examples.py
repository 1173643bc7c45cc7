"""Example controllers as in operator tutorials, in virtual time."""

import asyncio
import re
from pathlib import Path

import pytest

from bench.example_lines import COMPARED, counted
from jobsetpy import runtime as rt
from jobsetpy.api.schema import crd_of
from jobsetpy.serving.review import ReviewRequest
from jobsetpy.testing import VirtualClock, World, running_manager

pytestmark = pytest.mark.looptime

REPOSITORY = Path(__file__).resolve().parents[3]
SETTLED_S = 5


@pytest.fixture
def world():
    """A cluster in memory with a garbage collector."""
    made = World()
    made.garbage_collect = True
    return made


def condition(obj):
    (found,) = obj["status"]["conditions"]
    return found["type"], found["status"], found["reason"], found["message"]


async def test_a_memcached_is_created_and_repaired(example, world):
    """Deployment, Service and address are created; changes and deletions by others are reverted."""
    module = example("memcached")
    world.create("customresourcedefinitions", crd_of(module.Memcached))
    async with running_manager(world, module.setup):
        world.create("memcacheds", {"metadata": {"name": "a"}, "spec": {"size": 2}})
        await asyncio.sleep(SETTLED_S)
        assert world.get("deployments", "a")["spec"]["replicas"] == 2
        assert world.get("services", "a")["spec"]["ports"][0]["port"] == 11211
        assert world.get("configmaps", "memcached-addresses")["data"] == {
            "a": "a.default.svc:11211"
        }
        assert condition(world.get("memcacheds", "a")) == (
            "Available", "False", "NotReady", "0 of 2 servers are ready",
        )  # fmt: skip
        world.set_status("deployments", "a", readyReplicas=2)
        await asyncio.sleep(SETTLED_S)
        assert condition(world.get("memcacheds", "a"))[:3] == ("Available", "True", "AllReady")
        writes = len(world.requests.writes)
        world.patch("deployments", "a", {"spec": {"replicas": 7}})
        await asyncio.sleep(SETTLED_S)
        assert world.get("deployments", "a")["spec"]["replicas"] == 2
        (event,) = world.list("events")
        assert (event["reason"], event["note"]) == ("Changed", "set spec.replicas")
        assert len(world.requests.writes) == writes + 2, "the repair and its event"
        world.delete("services", "a")
        world.delete("configmaps", "memcached-addresses")
        await asyncio.sleep(SETTLED_S)
        assert world.get("services", "a") is not None
        assert world.get("configmaps", "memcached-addresses")["data"] == {
            "a": "a.default.svc:11211"
        }


async def test_cost_of_a_memcached_does_not_grow_with_their_number(example):
    """No reconcile reads all others because of the shared list."""
    module, requests = example("memcached"), []
    for count in (5, 50):
        world = World()
        world.create("customresourcedefinitions", crd_of(module.Memcached))
        async with running_manager(world, module.setup):
            for number in range(count):
                world.create("memcacheds", {"metadata": {"name": f"m{number}"}})
                await asyncio.sleep(1)
            requests.append(len(world.requests) / count)
    few, many = requests
    assert many <= few, requests


@pytest.mark.parametrize("list_is_gone", [False, True])
async def test_the_address_of_a_deleted_memcached_is_removed(example, world, list_is_gone):
    """Other addresses stay; a deleted list does not prevent the deletion."""
    module = example("memcached")
    world.create("customresourcedefinitions", crd_of(module.Memcached))
    async with running_manager(world, module.setup):
        for name in "ab":
            world.create("memcacheds", {"metadata": {"name": name}})
        await asyncio.sleep(SETTLED_S)
        if list_is_gone:
            world.delete("configmaps", "memcached-addresses")
        world.delete("memcacheds", "a")
        await asyncio.sleep(SETTLED_S)
        assert [each["metadata"]["name"] for each in world.list("memcacheds")] == ["b"]
        assert [each["metadata"]["name"] for each in world.list("deployments")] == ["b"]
        assert world.get("configmaps", "memcached-addresses")["data"] == {
            "b": "b.default.svc:11211"
        }


def shared(world, kind="configmaps", *, name="ca", value="1", namespace="source"):
    body = {"metadata": {"name": name, "labels": {"example.com/shared": "original"}}}
    return world.create(kind, {**body, "data": {"x": value}}, namespace=namespace)


async def test_a_refused_copy_is_reported_and_delays_no_other(example, world):
    """The condition names the object; it is tried again, and copied once this is possible."""
    module = example("shared_configuration")
    world.create("customresourcedefinitions", crd_of(module.SharedConfiguration))
    for name in ("source", "a", "b"):
        world.add_namespace(name)
    shared(world)
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    theirs = {"metadata": {"name": "ca", "ownerReferences": [reference]}, "data": {"x": "theirs"}}
    world.garbage_collect = False
    world.create("configmaps", theirs, namespace="a")
    spec = {"originals": "source"}
    async with running_manager(world, module.setup):
        world.create("sharedconfigurations", {"metadata": {"name": "all"}, "spec": spec})
        await asyncio.sleep(SETTLED_S)
        assert world.get("configmaps", "ca", namespace="a")["data"] == {"x": "theirs"}
        assert world.get("configmaps", "ca", namespace="b")["data"] == {"x": "1"}
        found = condition(world.get("sharedconfigurations", "all", namespace=""))
        assert found[:3] == ("Copied", "False", "Refused")
        assert "ConfigMap a/ca belongs to Pod p already" in found[3]
        world.delete("configmaps", "ca", namespace="a")
        await asyncio.sleep(61)
        assert world.get("configmaps", "ca", namespace="a")["data"] == {"x": "1"}


def debug_pod(name, ttl):
    container = {"name": "c", "image": "test.invalid/c:1"}
    metadata = {"name": name, "labels": {"example.com/ttl": ttl}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


async def test_pods_are_deleted_after_their_ttl(example):
    """A TTL may be extended; a pod with an invalid label is kept."""
    module, clock = example("pod_ttl"), VirtualClock()
    world = World(clock=clock)

    def pods():
        return [each["metadata"]["name"] for each in world.list("pods")]

    async with running_manager(world, module.setup, clock=clock):
        for name, ttl in (("short", "10m"), ("longer", "10m"), ("odd", "soon")):
            world.create("pods", debug_pod(name, ttl))
        await asyncio.sleep(9 * 60)
        assert pods() == ["longer", "odd", "short"]
        world.patch("pods", "longer", {"metadata": {"labels": {"example.com/ttl": "1h"}}})
        await asyncio.sleep(61)
        assert pods() == ["longer", "odd"]
        await asyncio.sleep(50 * 60)
        assert pods() == ["odd"]
        notes = {each["reason"]: each["note"] for each in world.list("events")}
        assert (
            notes["InvalidTTL"]
            == "label example.com/ttl: 'soon' is no duration such as 15s or 1m30s"
        )


async def test_a_web_app_is_defaulted_and_checked(example):
    """A missing tag is latest, with a warning; more surge than replicas is refused."""
    module = example("web_apps")
    webhook = rt.Webhook(module.WebApp, default=module.default, validate=module.validate)

    def review(**spec):
        app = {"metadata": {"name": "a"}, "spec": {"image": {"repository": "shop"}, **spec}}
        return ReviewRequest("1", "CREATE", "", "a", app, None)

    (patch,) = (await webhook.answer_mutate(review())).patch
    assert (patch["path"], patch["value"]) == ("/spec/image/tag", "latest")
    warned = await webhook.answer_validate(review(image={"repository": "shop", "tag": "latest"}))
    assert warned.warnings == ["spec.image.tag: latest may be another image at each start"]
    refused = (await webhook.answer_validate(review(replicas=1, maxSurge=2))).status
    assert "spec.maxSurge: at most spec.replicas, which is 1" in refused["message"]


async def test_a_web_app_keeps_its_deployment(example, world):
    """The Deployment follows the spec, and the status its readiness."""
    module = example("web_apps")
    world.create("customresourcedefinitions", crd_of(module.WebApp))

    def setup(manager):
        apps, deployments = manager.informer(module.WebApp), manager.informer(rt.Deployment)
        reconcile = module.WebApps(manager.client).reconcile
        manager.add(rt.controller_for(apps, reconcile, name="web-apps", owns=[deployments]))

    async with running_manager(world, setup):
        spec = {"image": {"repository": "shop", "tag": "1"}, "replicas": 2}
        world.create("webapps", {"metadata": {"name": "a"}, "spec": spec})
        await asyncio.sleep(SETTLED_S)
        made = world.get("deployments", "a")["spec"]
        assert made["template"]["spec"]["containers"][0]["image"] == "shop:1"
        world.set_status("deployments", "a", readyReplicas=2)
        await asyncio.sleep(SETTLED_S)
        assert world.get("webapps", "a")["status"] == {"ready": 2}


@pytest.mark.parametrize("name", COMPARED)
async def test_an_example_has_at_most_half_of_the_lines_of_the_other_library(name):
    """Code lines are compared with the program in bench/library_programs, including its YAML."""
    ours, other = counted()[name]
    assert ours <= other / 2, f"{ours} of {other} lines"


async def test_the_page_of_comparisons_has_the_counted_lines():
    """The table of the page equals the command's output."""
    page = (REPOSITORY / "docs/tutorial/coming-from.md").read_text()
    rows = re.findall(r"^\| \[`(\w+)`\].* \| (\d+) \| [\w-]+: (\d+)", page, re.MULTILINE)
    assert {name: (int(ours), int(other)) for name, ours, other in rows} == counted()
