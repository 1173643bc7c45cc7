"""The fake Job controller."""

import pytest

from jobsetpy.testing import FakeJobController, World, make_job

INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.fixture
def world():
    made = World()
    made.garbage_collect = True
    return made


def conditions(world: World, name: str) -> dict[str, str]:
    """Return the status of each condition."""
    found = world.get("jobs", name)["status"].get("conditions", [])
    return {one["type"]: one["status"] for one in found}


def test_pods_of_an_indexed_job(world):
    """Each index gets a running pod with the template's labels and an owner."""
    jobs = FakeJobController(world)
    job = world.create("jobs", make_job("a").pods(3).build())

    pods = jobs.pods_of("a")

    assert [pod["metadata"]["annotations"][INDEX] for pod in pods] == ["0", "1", "2"]
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    assert pods[0]["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert pods[0]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "a"
    status = world.get("jobs", "a")["status"]
    assert (status["active"], status["ready"]) == (3, 3)


def test_success(world):
    """A Job is complete when all its pods have succeeded."""
    jobs = FakeJobController(world)
    world.create("jobs", make_job("a").pods(2).build())

    jobs.finish("a")

    assert conditions(world, "a") == {"Complete": "True"}
    assert world.get("jobs", "a")["status"]["succeeded"] == 2


def test_failure_and_replacement(world):
    """Failed pods are replaced up to the back-off limit; then the Job fails and ends its pods."""
    jobs = FakeJobController(world)
    world.create("jobs", make_job("a").pods(2).spec(backoffLimit=1).build())

    jobs.finish("a", failed=True)
    assert len(jobs.pods_of("a")) == 3
    assert conditions(world, "a") == {}
    jobs.finish("a", failed=True)

    assert conditions(world, "a") == {"Failed": "True"}
    assert {pod["status"]["phase"] for pod in jobs.pods_of("a")} == {"Failed"}
    assert world.get("jobs", "a")["status"]["active"] == 0


def test_suspension(world):
    """A suspended Job has no pods until it is resumed."""
    jobs = FakeJobController(world)
    world.create("jobs", make_job("a").suspend().build())
    assert jobs.pods_of("a") == []
    assert conditions(world, "a") == {"Suspended": "True"}

    world.patch("jobs", "a", {"spec": {"suspend": False}})
    assert len(jobs.pods_of("a")) == 1
    assert conditions(world, "a") == {"Suspended": "False"}

    world.patch("jobs", "a", {"spec": {"suspend": True}})
    assert jobs.pods_of("a") == []


def test_deleted_pods_come_back_and_deleted_jobs_do_not(world):
    """A deleted pod is replaced; a Job's pods are deleted with it."""
    jobs = FakeJobController(world)
    world.create("jobs", make_job("a").build())
    (first,) = jobs.pods_of("a")

    world.delete("pods", first["metadata"]["name"])
    (second,) = jobs.pods_of("a")
    world.delete("jobs", "a", propagation="Foreground")

    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert world.list("jobs") == world.list("pods") == []


def test_existing_jobs_are_adopted(world):
    """Without a kubelet, their pods stay pending."""
    world.create("jobs", make_job("a").build())

    jobs = FakeJobController(world, kubelet=False)

    (pod,) = jobs.pods_of("a")
    assert pod["status"]["phase"] == "Pending"
    assert world.get("jobs", "a")["status"]["ready"] == 0


def test_pods_without_an_index(world):
    """A Job that is not indexed keeps its parallelism until its completions are reached."""
    jobs = FakeJobController(world)
    spec = {"completionMode": "NonIndexed", "parallelism": 2, "completions": 3}
    world.create("jobs", make_job("a").spec(**spec).build())
    assert len(jobs.pods_of("a")) == 2
    assert INDEX not in jobs.pods_of("a")[0]["metadata"].get("annotations", {})

    jobs.finish("a")
    assert world.get("jobs", "a")["status"]["active"] == 1
    jobs.finish("a")

    assert conditions(world, "a") == {"Complete": "True"}
