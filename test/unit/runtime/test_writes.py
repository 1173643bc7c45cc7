"""Common writes of controllers: finalizers, conditions, status, owned objects; in memory."""

import asyncio
from datetime import UTC, datetime, timedelta

import attrs
import pytest

from jobsetpy import runtime as rt
from jobsetpy.testing import RecordingClient, World, decoded, make_job, make_pod

pytestmark = pytest.mark.looptime

NOW = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)
FINALIZER = rt.finalizer("example.com/files")


@pytest.fixture
def client():
    return RecordingClient(World(), qps=0)


def config_map(client, name="a", **meta):
    """Create a ConfigMap; return it as a cache would."""
    made = client.world.create("configmaps", {"metadata": {"name": name, **meta}})
    return decoded(rt.ConfigMap, made)


class CleanUp:
    """A clean-up that records its calls, of which the first ``failures`` fail."""

    def __init__(self, failures=0):
        self.names = []
        self.failures = failures

    async def __call__(self, obj):
        self.names.append(obj.metadata.name)
        if self.failures:
            self.failures -= 1
            raise OSError


# -- finalizers ------------------------------------------------------------------------------------


async def test_a_live_object_gets_the_finalizer_once(client):
    """It is added next to other finalizers, and an object that has it is not written."""
    obj, clean_up = config_map(client, finalizers=["other.io/x"]), CleanUp()

    assert not await FINALIZER.guard(client, obj, clean_up)
    obj = decoded(rt.ConfigMap, client.world.get("configmaps", "a"))
    assert not await FINALIZER.guard(client, obj, clean_up)

    assert obj.metadata.finalizers == ("other.io/x", "example.com/files")
    assert len(client.writes) == 1
    assert clean_up.names == []


async def test_a_deleted_object_is_cleaned_up_and_released(client):
    """The clean-up comes first; after a failure the finalizer stays for the next attempt."""
    config_map(client, finalizers=["other.io/x", FINALIZER.name])
    client.world.delete("configmaps", "a")
    obj = decoded(rt.ConfigMap, client.world.get("configmaps", "a"))
    clean_up = CleanUp(failures=1)

    with pytest.raises(OSError):
        await FINALIZER.guard(client, obj, clean_up)
    assert client.writes == []
    assert await FINALIZER.guard(client, obj, clean_up)

    assert clean_up.names == ["a", "a"]
    assert client.world.get("configmaps", "a")["metadata"]["finalizers"] == ["other.io/x"]


async def test_a_deleted_object_without_the_finalizer_is_ignored(client):
    """Nothing is cleaned up twice, and no finalizer is added to a terminating object."""
    config_map(client, finalizers=["other.io/x"])
    client.world.delete("configmaps", "a")
    obj = decoded(rt.ConfigMap, client.world.get("configmaps", "a"))
    clean_up = CleanUp()

    assert await FINALIZER.guard(client, obj, clean_up)
    assert (clean_up.names, client.writes) == ([], [])


@pytest.mark.parametrize("deleted", [False, True])
async def test_other_finalizers_are_kept_when_the_cache_is_old(client, deleted):
    """After a conflict the object is read again, so that new finalizers stay."""
    obj = config_map(client, finalizers=[FINALIZER.name] if deleted else [])
    if deleted:
        client.world.patch(
            "configmaps", "a", {"metadata": {"finalizers": [FINALIZER.name, "other.io/x"]}}
        )
        assert await FINALIZER.remove(client, obj) is not None
        expected = ["other.io/x"]
    else:
        client.world.patch("configmaps", "a", {"metadata": {"finalizers": ["other.io/x"]}})
        assert await FINALIZER.ensure(client, obj) is not None
        expected = ["other.io/x", FINALIZER.name]

    assert client.world.get("configmaps", "a")["metadata"]["finalizers"] == expected


async def test_an_object_is_cleaned_up_when_the_cache_does_not_show_its_deletion(client):
    """The server's answer to the finalizer's check shows the deletion."""
    old = config_map(client)
    client.world.patch("configmaps", "a", {"metadata": {"finalizers": [FINALIZER.name]}})
    client.world.delete("configmaps", "a")
    clean_up = CleanUp()

    assert await FINALIZER.guard(client, old, clean_up)
    assert clean_up.names == ["a"]
    assert client.world.get("configmaps", "a") is None


async def test_another_object_of_the_same_name_is_not_changed(client):
    """An object that is gone needs no finalizer."""
    old = config_map(client)
    client.world.delete("configmaps", "a")
    assert await FINALIZER.ensure(client, old) is None
    config_map(client)
    assert await FINALIZER.ensure(client, old) is None
    assert "finalizers" not in client.world.get("configmaps", "a")["metadata"]


async def test_a_persistent_conflict_is_raised(client):
    """After five attempts the reconcile is repeated instead, with its back-off."""
    obj = config_map(client)
    client.world.faults.status(409, verb="patch", resource="configmaps")
    with pytest.raises(rt.ConflictError):
        await FINALIZER.ensure(client, obj)
    assert len(client.writes) == 5


@pytest.mark.parametrize("name", ["files", "Example.com/x", "example.com/", "example.com/a b"])
def test_a_finalizer_needs_a_qualified_name(name):
    """The server would refuse another name at the first write."""
    with pytest.raises(ValueError, match="DOMAIN/NAME"):
        rt.finalizer(name)


# -- conditions ------------------------------------------------------------------------------------


def test_a_condition_keeps_its_transition_time_until_its_status_changes():
    """Reason, message and generation do not change it; equal conditions are the same tuple."""
    first = rt.set_condition((), "Ready", False, "Waiting", now=NOW)
    assert first[0].last_transition_time == NOW.replace(microsecond=0)
    later = NOW + timedelta(hours=1)
    assert rt.set_condition(first, "Ready", False, "Waiting", now=later) is first
    slow = rt.set_condition(
        first, "Ready", "False", "Slow", "still", observed_generation=2, now=later
    )
    assert slow[0].last_transition_time == first[0].last_transition_time
    assert (slow[0].reason, slow[0].message, slow[0].observed_generation) == ("Slow", "still", 2)
    done = rt.set_condition(slow, "Ready", True, "Done", now=later)
    assert done[0].last_transition_time == later.replace(microsecond=0)


def test_conditions_keep_their_order():
    """A changed condition keeps its place, a new one comes last."""
    both = rt.set_condition(rt.set_condition((), "A", True, "X", now=NOW), "B", None, "X", now=NOW)
    changed = rt.set_condition(both, "A", False, "Y", now=NOW)
    assert [(each.type, each.status) for each in changed] == [("A", "False"), ("B", "Unknown")]
    assert rt.condition_of(changed, "B") is changed[1]
    assert rt.condition_of(changed, "C") is None


@pytest.mark.parametrize(("status", "reason"), [("true", "X"), (1.5, "X"), (True, "")])
def test_invalid_conditions_are_refused(status, reason):
    """Another status, and an empty reason, are refused before the server would do so."""
    with pytest.raises(ValueError, match="condition 'A'"):
        rt.set_condition((), "A", status, reason)


# -- status ----------------------------------------------------------------------------------------


async def test_only_differences_of_a_status_are_written(client):
    """There is one small patch, and no write when nothing differs."""
    made = client.world.create("jobs", make_job("a").build())
    client.world.set_status("jobs", "a", active=2, ready=1, terminating=3)
    job = decoded(rt.Job, {**made, **client.world.get("jobs", "a")})

    job = await rt.patch_status(client, job, attrs.evolve(job.status, ready=2))
    again = await rt.patch_status(client, job, lambda one: attrs.evolve(one.status, ready=2))

    assert again is job
    (write,) = client.writes
    assert write.json["status"] == {"ready": 2}
    stored = client.world.get("jobs", "a")["status"]
    assert stored["terminating"] == 3, "fields unknown to the class are kept"


async def test_a_status_is_read_again_when_others_changed_it(client):
    """The change is computed again for the current state; other fields survive."""
    job = decoded(rt.Job, client.world.create("jobs", make_job("a").build()))
    client.world.set_status("jobs", "a", failed=7)

    def one_more(current):
        return attrs.evolve(current.status, failed=current.status.failed + 1)

    await rt.patch_status(client, job, one_more)
    assert client.world.get("jobs", "a")["status"]["failed"] == 8


async def test_writing_the_status_of_a_deleted_object_is_an_error(client):
    """It is also an error when another object has the name."""
    job = decoded(rt.Job, client.world.create("jobs", make_job("a").build()))
    client.world.delete("jobs", "a")
    with pytest.raises(rt.NotFoundError):
        await rt.patch_status(client, job, attrs.evolve(job.status, failed=1))
    client.world.create("jobs", make_job("a").build())
    with pytest.raises(rt.NotFoundError, match="another object now"):
        await rt.patch_status(client, job, attrs.evolve(job.status, failed=1))


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1, "b": {"c": [1]}}, {"a": 1, "b": {"c": [1]}}, {}),
        ({"a": 1}, {}, {"a": None}),
        ({}, {"a": {}}, {"a": {}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)
def test_differences(old, new, patch):
    """A difference is the smallest merge patch."""
    assert rt.difference(old, new) == patch


# -- owned objects ---------------------------------------------------------------------------------


async def test_an_owned_object_is_created_kept_and_repaired(client):
    """A second call writes nothing; changes by others are reported and reverted."""
    owner = config_map(client, "owner")

    async def have(**data):
        body = {"data": data, "metadata": {"labels": {"app": "x"}}}
        return await rt.create_or_apply(
            client, rt.ConfigMap, "default", "child", body, owner="tester", controller=owner
        )

    made = await have(a="1", b="2")
    again = await have(a="1", b="2")
    client.world.patch("configmaps", "child", {"data": {"a": "9", "other": "x"}})
    repaired = await have(a="1", b="2")
    fewer = await have(a="1")
    settled = await have(a="1")

    outcomes = [each.outcome for each in (made, again, repaired, fewer, settled)]
    assert outcomes == ["created", "unchanged", "updated", "updated", "unchanged"]
    assert [each.drift for each in (made, again, repaired, fewer)] == [(), (), ("data.a",), ()]
    child = client.world.get("configmaps", "child")
    assert child["data"] == {"a": "1", "other": "x"}
    assert child["metadata"]["ownerReferences"][0]["uid"] == owner.metadata.uid
    assert len(client.writes) == 3
    assert settled.obj.metadata.resource_version == fewer.obj.metadata.resource_version


async def test_an_object_of_another_controller_is_not_taken(client):
    """Two owners would overwrite each other, so this is a conflict."""
    first, second = config_map(client, "first"), config_map(client, "second")
    place = (client, rt.ConfigMap, "default", "child", {"data": {}})
    await rt.create_or_apply(*place, owner="tester", controller=first)
    with pytest.raises(rt.ConflictError, match="belongs to ConfigMap first already"):
        await rt.create_or_apply(*place, owner="tester", controller=second)


async def test_an_owner_in_another_namespace_is_refused(client):
    """The garbage collector would delete the object immediately."""
    owner = config_map(client, "owner")
    with pytest.raises(ValueError, match="the same namespace"):
        await rt.create_or_apply(
            client, rt.ConfigMap, "kube-system", "x", {}, owner="tester", controller=owner
        )


async def test_a_list_is_read_page_by_page(client):
    """All objects are returned, and each page is one request."""
    for number in range(7):
        client.world.create("pods", make_pod(f"p{number}").build())
    found = [
        pod.metadata.name async for pod in rt.list_objects(client, rt.Pod, "default", page_limit=3)
    ]
    assert found == [f"p{number}" for number in range(7)]
    assert client.world.requests.count("list", "pods") == 3


async def test_a_dry_run_stores_nothing(client):
    """The answer is the object that would have been stored, or the error."""
    obj, dry = config_map(client), client.dry_run()
    made = await dry.create(rt.ConfigMap, "default", {"metadata": {"name": "b"}})
    assert made.metadata.name == "b"
    await dry.merge_patch(rt.ConfigMap, "default", "a", {"data": {"k": "v"}})
    await dry.delete(rt.ConfigMap, "default", "a")
    with pytest.raises(rt.InvalidError):
        await dry.merge_patch(rt.ConfigMap, "default", "a", {"metadata": {"labels": {"a": "b c"}}})

    names = [each["metadata"]["name"] for each in client.world.list("configmaps")]
    assert names == ["a"]
    assert client.world.get("configmaps", "a")["metadata"]["resourceVersion"] == (
        obj.metadata.resource_version
    )


async def test_bursts_are_one_reconcile():
    """With ``debounce_s`` requests are delayed, and those of one key are merged."""
    client, calls = RecordingClient(World(), qps=0), []

    class Reconciler:
        async def reconcile(self, request):
            calls.append((request.name, asyncio.get_running_loop().time()))
            return rt.Result.done()

    manager = rt.Manager(client)
    maps = manager.informer(rt.ConfigMap)
    watch = rt.Watch(maps, rt.enqueue_self, debounce_s=2)
    manager.add(rt.Controller(name="burst", reconciler=Reconciler(), watches=[watch]))
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(manager.run(stop))
        await asyncio.sleep(5)
        began = asyncio.get_running_loop().time()
        config_map(client)
        for number in range(15):
            await asyncio.sleep(0.1)
            client.world.patch("configmaps", "a", {"data": {"n": str(number)}})
        await asyncio.sleep(10)
        stop.set()

    assert [name for name, _ in calls] == ["a"]
    assert 1.9 < calls[0][1] - began < 2.5


# -- predicates ------------------------------------------------------------------------------------


def test_predicates():
    """Each predicate passes the events in its name."""

    def pod(phase="Running", **labels):
        meta = {"name": "a", "namespace": "ns", "labels": labels}
        return decoded(rt.Pod, {"metadata": meta, "status": {"phase": phase}})

    add, gone = rt.Event(None, pod(app="x")), rt.Event(pod(), None)
    same, other = rt.Event(pod(), pod()), rt.Event(pod(app="x"), pod("Failed"))
    events = [add, gone, same, other]

    def passing(predicate):
        return [predicate(event) for event in events]

    assert passing(rt.created) == [True, False, False, False]
    assert passing(rt.deleted) == [False, True, False, False]
    assert passing(rt.updated) == [False, False, True, True]
    assert passing(rt.field_changed("status.phase")) == [True, True, False, True]
    assert passing(rt.field_changed("status.nothing.there")) == [True, True, False, False]
    assert passing(rt.named("b")) == [False] * 4


async def test_subresources():
    """A subresource can be read, and created, as for an eviction."""
    client = RecordingClient(qps=0)
    client.world.create("pods", make_pod("a").build())
    assert (await client.get(rt.Pod, "default", "a", subresource="status")).metadata.name == "a"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    done = await client.create_subresource(rt.Pod, "default", "a", "eviction", body)
    assert (done["status"], client.world.get("pods", "a")) == ("Success", None)
    with pytest.raises(rt.NotFoundError):
        await client.create_subresource(rt.Pod, "default", "a", "eviction", body)
    assert client.calls[0] == ("create", "pods/eviction", "a")
