"""Checklist of the controller, cases 1-12, 45 and 46: life cycle, Service, counters."""

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Service
from jobsetpy.api.jobset import JobSet
from jobsetpy.testing import make_job
from support.features.checklist_kit import A0, ALL, B0, B1, B2, NAME, RA, RB, standard_jobset

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

DONE = ((RB, {"succeeded": 3}), (RA, {"succeeded": 1}))


async def test_case_02_creates_every_job(js):
    """A new JobSet controls one Job for each replica of each ReplicatedJob."""
    jobset = await js.create(standard_jobset())
    await js.until_jobs(*ALL)

    jobs = await js.read_all(Job)
    assert {job["metadata"]["labels"][keys.JOBSET_NAME] for job in jobs.values()} == {NAME}
    owners = [job["metadata"]["ownerReferences"] for job in jobs.values()]
    assert {(owner["uid"], owner["controller"]) for (owner,) in owners} == {
        (jobset["metadata"]["uid"], True)
    }


@pytest.mark.parametrize("labels", [{}, {keys.JOBSET_NAME: NAME}], ids=["unlabelled", "labelled"])
async def test_case_04_ignores_a_job_of_another_uid(js, labels):
    """A Job of a former JobSet with the same name neither counts nor blocks, with any labels."""
    former = {
        "apiVersion": JobSet.RESOURCE.api_version,
        "kind": "JobSet",
        "metadata": {"name": NAME, "uid": "00000000-0000-4000-8000-000000000000"},
    }
    foreign = make_job("foreign", js.namespace).owned_by(former).labels(labels).build()
    await js.client.create(Job, js.namespace, foreign)
    await js.create(standard_jobset())
    await js.until_jobs(*ALL, *(["foreign"] if labels else []))
    await js.complete(*ALL)
    await js.until_completed()

    await js.until_counters(*DONE)
    await js.settled()
    assert "deletionTimestamp" not in (await js.read(Job, "foreign"))["metadata"]
    assert not await js.events("InvalidChildJob")


async def test_case_06_one_service_and_completion(js):
    """DNS names need exactly one headless Service, which does not prevent completion."""
    await js.started()
    await js.settled()

    assert await js.services() == [NAME]
    service = await js.read(Service, NAME)
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {keys.JOBSET_NAME: NAME}
    assert service["spec"]["publishNotReadyAddresses"] is True
    await js.complete(*ALL)
    await js.until_completed()


async def test_case_10_service_has_a_generated_name(js):
    """The Service has the JobSet's name, even if the API server generated it."""
    body = standard_jobset().build()
    body["metadata"] = {"generateName": "made-up-"}
    name = (await js.create(body))["metadata"]["name"]
    await js.settled(name)

    assert name.startswith("made-up-")
    assert await js.services() == [name]


async def test_case_45_counters_of_success(js):
    """The stored counters equal those of the Jobs, step by step until all have succeeded."""
    await js.started()
    done = []
    for name in (A0, B0, B1, B2):
        await js.complete(name)
        done.append(name)
        await js.settled()
        b = len(done) - 1
        expected = [(RB, {"succeeded": b} if b else {}), (RA, {"succeeded": 1})]
        assert await js.counters() == expected

    await js.until_completed()


async def test_case_12_job_cannot_be_created(js):
    """A refused Job is reported by one Warning event, whose count grows with repetitions."""
    broken = standard_jobset().build()
    for item in broken["spec"]["replicatedJobs"]:
        item["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = ""
    await js.create(broken)

    async def repeated() -> None:
        events = await js.events("JobCreationFailed")
        assert len(events) == 1
        (event,) = events
        assert event["type"] == "Warning"
        assert event["regarding"]["name"] == NAME
        assert f'job "{A0}" creation failed with error:' in event["note"]
        assert (event.get("series") or {}).get("count", 1) > 1

    await js.until(repeated)
    # Its endless retries would disturb the next test.
    await js.client.delete(JobSet, js.namespace, NAME)
