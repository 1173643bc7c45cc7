"""Checklist of the controller, cases 58-64: volumes, other managers, time to live, resizing."""

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import PersistentVolumeClaim
from jobsetpy.api.jobset import JobSet
from support.features.checklist_kit import (
    A0,
    ALL,
    B0,
    NAME,
    RA,
    RB,
    Scenario,
    bare_jobset,
    now,
    standard_jobset,
)

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]


def claim_policy(name, when_deleted):
    """A volume claim policy with one template."""
    request = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
    return {
        "templates": [{"metadata": {"name": name, "labels": {"app": "own"}}, "spec": request}],
        "retentionPolicy": {"whenDeleted": when_deleted},
    }


def mounting_jobset(*policies, name=NAME):
    """A JobSet of one Job whose container mounts the claims of all policies."""
    names = [policy["templates"][0]["metadata"]["name"] for policy in policies]
    mounts = [{"name": each, "mountPath": f"/{each}"} for each in names]
    container = {"name": "main", "image": "test.invalid/main:1", "volumeMounts": mounts}
    jobset = bare_jobset(name).replicated_job(RA, pod={"containers": [container]})
    return jobset.spec(volumeClaimPolicies=list(policies))


async def delete_with_claims(js: Scenario):
    """Delete the JobSet and, in place of the garbage collector, the claims that it owns."""
    await js.client.delete(JobSet, js.namespace, NAME)
    for name, claim in (await js.read_all(PersistentVolumeClaim)).items():
        if "ownerReferences" in claim["metadata"]:
            await js.client.delete(PersistentVolumeClaim, js.namespace, name)
            body = {"metadata": {"finalizers": None}}
            await js.client.merge_patch(PersistentVolumeClaim, js.namespace, name, body)


async def test_case_58_volume_claims(js):
    """A claim is deleted with its JobSet or retained, according to its policy; pods mount both."""
    policies = claim_policy("scratch", "Delete"), claim_policy("results", "Retain")
    await js.create(mounting_jobset(*policies))
    await js.until_jobs(A0)
    claims = await js.read_all(PersistentVolumeClaim)
    assert sorted(claims) == [f"results-{NAME}", f"scratch-{NAME}"]
    for claim in claims.values():
        assert claim["metadata"]["labels"] == {"app": "own", keys.JOBSET_NAME: NAME}
    volumes = (await js.read(Job, A0))["spec"]["template"]["spec"]["volumes"]
    assert {item["name"]: item["persistentVolumeClaim"]["claimName"] for item in volumes} == {
        "scratch": f"scratch-{NAME}",
        "results": f"results-{NAME}",
    }
    await js.rests()
    await js.complete(A0)
    await js.until_completed()

    await delete_with_claims(js)
    await js.client.delete(Job, js.namespace, A0)
    assert await js.claims() == [f"results-{NAME}"]

    second = "second"
    await js.create(mounting_jobset(claim_policy("results", "Retain"), name=second))
    await js.until_jobs(f"{second}-{RA}-0")
    await js.complete(f"{second}-{RA}-0")

    async def completed() -> None:
        assert (await js.status(second)).get("terminalState") == "Completed"

    await js.until(completed)
    assert await js.claims() == [f"results-{second}", f"results-{NAME}"]


async def test_case_58_retained_claim_is_used_again(js):
    """Beyond the case: a later JobSet with the same name uses the retained claim."""
    jobset = mounting_jobset(claim_policy("results", "Retain"))
    await js.create(jobset)
    await js.until_jobs(A0)
    before = (await js.read(PersistentVolumeClaim, f"results-{NAME}"))["metadata"]["uid"]
    await delete_with_claims(js)
    await js.client.delete(Job, js.namespace, A0)

    await js.create(jobset)
    await js.until_jobs(A0)
    await js.settled()
    assert await js.claims() == [f"results-{NAME}"]
    assert (await js.read(PersistentVolumeClaim, f"results-{NAME}"))["metadata"]["uid"] == before


async def test_case_62_status_of_another_manager(js):
    """A status that another controller wrote is not changed."""
    await js.create(standard_jobset().managed_by("example.com/other-controller"))
    counters = {"ready": 1, "succeeded": 2, "failed": 3, "active": 4, "suspended": 5}
    condition = {
        "type": "Failed",
        "status": "False",
        "reason": "Other",
        "message": "written by another controller",
        "lastTransitionTime": now(),
    }
    written = {
        "conditions": [condition],
        "restarts": 1,
        "replicatedJobsStatus": [{"name": name, **counters} for name in (RA, RB)],
    }
    body = {"status": written}
    await js.client.merge_patch(JobSet, js.namespace, NAME, body, subresource="status")
    await js.settled()

    status = await js.status()
    assert {key: status[key] for key in written} == written
    assert await js.job_names() == []


async def test_case_63_time_to_live(js):
    """A finished JobSet is deleted, foreground, after its time to live; without one it stays."""
    other = "other"
    await js.create(standard_jobset().ttl(2))
    await js.create(standard_jobset(other))
    others = [name.replace(NAME, other, 1) for name in ALL]
    await js.until_jobs(*ALL, *others)
    await js.complete(*others)
    await js.fail(B0)
    await js.until_failed("FailedJobs")

    async def deleted(*names, cls=Job) -> None:
        objects = await js.read_all(cls)
        deleting = {name for name, one in objects.items() if "deletionTimestamp" in one["metadata"]}
        assert deleting == set(names)

    await js.until(deleted, *(set(ALL) - {B0}))
    assert "deletionTimestamp" not in (await js.read(JobSet, NAME))["metadata"]
    await js.until(deleted, NAME, cls=JobSet)
    assert (await js.read(JobSet, NAME))["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert (await js.status(other))["terminalState"] == "Completed"


async def test_case_64_resize(js):
    """A running Job is resized with its template, and not written again afterwards."""
    await js.create(bare_jobset().replicated_job(RA, parallelism=2))
    await js.until_jobs(A0)
    uid = (await js.read(Job, A0))["metadata"]["uid"]
    await js.replace_templates(
        lambda item: item["template"]["spec"].update(parallelism=4, completions=4)
    )

    async def resized() -> None:
        spec = (await js.read(Job, A0))["spec"]
        assert (spec["parallelism"], spec["completions"]) == (4, 4)

    await js.until(resized)
    await js.rests()
    assert (await js.read(Job, A0))["metadata"]["uid"] == uid
