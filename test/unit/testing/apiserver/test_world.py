"""The world behind the fake server, and other parts of the test kit."""

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap, Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import ObjectKey
from jobsetpy.errors import AlreadyExistsError, ConflictError, NotFoundError, StreamBrokenError
from jobsetpy.informers import OWNER_UID
from jobsetpy.testing import (
    RecordingClient,
    StatusError,
    World,
    decoded,
    make_job,
    make_jobset,
    make_pod,
    store_of,
    store_writer_of,
)


def test_objects_are_copied_when_they_are_stored_and_read():
    """Changing a copy does not change the world."""
    world = World()
    body = {"metadata": {"name": "a"}, "data": {"k": "v"}}
    made = world.create("configmaps", body)
    made["data"]["k"] = body["data"]["k"] = "other"
    world.get("configmaps", "a")["data"]["k"] = "other"
    world.list("configmaps")[0]["data"]["k"] = "other"

    assert world.get("configmaps", "a")["data"] == {"k": "v"}


def test_kinds_by_name_and_by_class():
    """A kind is named by plural, plural and group, class or ResourceInfo."""
    world = World()
    world.create("jobs.batch", make_job("a").build())

    for what in ("jobs", "jobs.batch", Job, Job.RESOURCE):
        assert world.get(what, "a")["kind"] == "Job"
    with pytest.raises(LookupError, match="register it first"):
        world.get(JobSet, "a")


def test_refusals_are_status_errors():
    """A refusal has the answer that a client would get."""
    world = World()
    world.create("configmaps", {"metadata": {"name": "a"}})

    with pytest.raises(StatusError) as refused:
        world.create("configmaps", {"metadata": {"name": "a"}})

    assert (refused.value.code, refused.value.reason) == (409, "AlreadyExists")


def test_status_and_labels():
    """set_status writes the status subresource; list takes a selector."""
    world = World()
    world.create("pods", make_pod("a").labels(app="x").build())
    world.create("pods", make_pod("b").build())
    world.set_status("pods", "a", phase="Running")

    assert world.get("pods", "a")["status"]["phase"] == "Running"
    assert [pod["metadata"]["name"] for pod in world.list("pods", labels="app=x")] == ["a"]


def test_garbage_collection_can_be_enabled_late():
    """It then collects all objects without an owner."""
    world = World()
    world.register(JobSet)
    owner = world.create(JobSet, make_jobset("js").build())
    job = world.create("jobs", make_job("job").of(owner, "w").build())
    world.create("pods", make_pod("pod").of(job).build())
    world.delete(JobSet, "js", propagation="Foreground")
    assert world.get(JobSet, "js")["metadata"]["finalizers"] == ["foregroundDeletion"]

    world.garbage_collect = True

    assert world.get(JobSet, "js") is None
    assert world.list("jobs") == world.list("pods") == []


def test_definitions_make_kinds():
    """Creating a CustomResourceDefinition makes its kind; deleting it removes all objects."""
    world = World()
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "example.com", "names": names, "scope": "Cluster", "versions": [version]}
    world.create(
        "customresourcedefinitions", {"metadata": {"name": "things.example.com"}, "spec": spec}
    )

    made = world.create("things", {"metadata": {"name": "a"}, "status": {"x": 1}})

    assert made["apiVersion"] == "example.com/v1"
    assert "namespace" not in made["metadata"]
    assert "status" not in made
    world.delete("customresourcedefinitions", "things.example.com")
    with pytest.raises(LookupError):
        world.list("things")


def test_built_objects_are_valid():
    """They are decoded by our models."""
    builder = (
        make_jobset("js")
        .labels({"a/b": "c"}, team="x")
        .annotations(note="n")
        .replicated_job("driver", group="lead")
        .replicated_job("worker", replicas=2, parallelism=4, depends_on={"driver": "Ready"})
        .failure_policy(
            max_restarts=3, strategy="BlockingRecreate", rules=[{"action": "RestartJobSet"}]
        )
        .success_policy("Any", "driver")
        .spec(coordinator={"replicatedJob": "driver"})
        .ttl(60)
        .managed_by("example.com/other")
        .suspend()
    )
    jobset = decoded(JobSet, builder.build())

    assert jobset.metadata.labels == {"a/b": "c", "team": "x"}
    driver, worker = jobset.spec.replicated_jobs
    assert (driver.group_name, worker.replicas) == ("lead", 2)
    assert worker.template["spec"]["completions"] == 4
    assert worker.depends_on[0].name == "driver"
    assert jobset.spec.failure_policy.max_restarts == 3
    assert jobset.spec.failure_policy.rules[0].action == "RestartJobSet"
    assert jobset.spec.success_policy.target_replicated_jobs == ("driver",)
    assert jobset.spec.coordinator.replicated_job == "driver"
    assert (jobset.spec.suspend, jobset.spec.ttl_seconds_after_finished) == (True, 60)
    assert jobset.spec.managed_by == "example.com/other"
    in_place = decoded(JobSet, make_jobset().in_place_restart().build())
    assert in_place.spec.failure_policy.restart_strategy == keys.IN_PLACE_RESTART


def test_builders_of_children():
    """Jobs and pods have the owner and the labels of their parents."""
    jobset = make_jobset("js").identity(uid="u", resource_version="7", generation=2).build()
    job = make_job("js-w-1").of(jobset, "w", 1, attempt=2).pods(3).identity(uid="j").failed()
    pod = make_pod("p").of(job.build(), 2).node("n").phase("Running").epoch(4).finalizers("a/b")

    made = decoded(Job, job.build())
    assert made.metadata.controller.uid == "u"
    assert made.metadata.labels[keys.RESTART_ATTEMPT] == "2"
    assert made.status.failed_condition is not None
    assert made.spec.completions == 3
    assert decoded(Job, make_job().complete().suspend().build()).status.finished is not None
    found = decoded(Pod, pod.build())
    assert found.metadata.controller.uid == "j"
    assert found.metadata.labels[keys.JOB_INDEX] == "1"
    assert found.metadata.annotations[keys.EPOCH_ANNOTATION] == "4"
    assert found.metadata.annotations[keys.COMPLETION_INDEX_ANNOTATION] == "2"
    assert (found.spec.node_name, found.status.phase) == ("n", "Running")
    assert found.metadata.finalizers == ("a/b",)


def test_stores_are_filled_by_hand():
    """A store of JSON or decoded objects is synced and indexed."""
    jobset = make_jobset("js").identity(uid="u").build()
    jobs = [make_job("a").of(jobset, "w").build(), decoded(Job, make_job("b").build())]

    store = store_of(Job, jobs, indexes=[OWNER_UID])

    assert store.has_synced
    assert [job.metadata.name for job in store.by_index(OWNER_UID, "u")] == ["a"]
    writer = store_writer_of(Job)
    writer.apply(decoded(Job, make_job("c").build()))
    assert writer.store.get(ObjectKey("default", "c")) is not None


async def test_recording_client():
    """A client in memory applies the server's rules and records each write."""
    client = RecordingClient()
    await client.create(ConfigMap, "default", {"metadata": {"name": "a"}})
    with pytest.raises(AlreadyExistsError):
        await client.create(ConfigMap, "default", {"metadata": {"name": "a"}})
    await client.merge_patch(ConfigMap, "default", "a", {"data": {"k": "v"}})
    with pytest.raises(ConflictError):
        await client.delete(ConfigMap, "default", "a", uid="other")
    with pytest.raises(NotFoundError):
        await client.get(ConfigMap, "default", "b")

    assert client.calls == [
        ("create", "configmaps", "a"),
        ("create", "configmaps", "a"),
        ("patch", "configmaps", "a"),
        ("delete", "configmaps", "a"),
    ]
    assert client.writes[2].json == {"data": {"k": "v"}}
    assert client.world.get(ConfigMap, "a")["data"] == {"k": "v"}


async def test_watch_in_memory():
    """Watches work without sockets, faults included."""
    client = RecordingClient()
    client.world.create("pods", make_pod("a").build())
    async with client.watch(Pod, "default", resource_version="0", timeout_seconds=60) as stream:
        assert (await stream.read())[0].type == "ADDED"
        client.world.faults.cut(verb="watch")
        with pytest.raises(StreamBrokenError):
            while True:
                assert await stream.read()
