"""Startup groups with a real API server, Job controller and garbage collector (KEP-498)."""

import asyncio

import pytest

from jobsetpy.api import keys
from jobsetpy.api.core import ConfigMap
from jobsetpy.errors import ForbiddenError, InvalidError
from support.features.groups_kit import MAP, replicated_job
from support.patience import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(90),
]

INIT = keys.GROUP_INIT_CONTAINER


def init_containers(pod):
    """Return the names of the init containers."""
    return [each["name"] for each in pod["spec"].get("initContainers", ())]


async def test_pods_of_the_targets_get_a_barrier(place, account_client):
    """ConfigMap, init container, volume and the right to watch are for the targets only.

    The namespace enforces the restricted profile, which the barrier satisfies.
    """
    config = {"targetReplicatedJobs": ["w"], "timeoutAfterSeconds": 300}
    made = await place.create(replicated_job("w", 2, 2), replicated_job("x"), config=config)
    pods = await place.has_pods("w-0-0", "w-0-1", "w-1-0", "w-1-1", "x-0-0")

    for name, pod in pods.items():
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        if name == "x-0-0":
            assert init_containers(pod) == []
            assert keys.GROUP_VOLUME not in volumes
            continue
        (container,) = pod["spec"]["initContainers"]
        assert container["name"] == INIT
        assert container["args"] == ["wait-for-group"]
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert mounts[keys.GROUP_VOLUME] == "/mnt/group-scheduling"
        assert any(name.startswith("kube-api-access") for name in mounts)  # the account's token
        source = volumes[keys.GROUP_VOLUME]["configMap"]
        assert (source["name"], source["optional"]) == (MAP, True)
    config_map = await place.config_map()
    assert config_map.metadata.controller.uid == made.metadata.uid
    assert not (config_map.data or {}).get("started")
    jobs = (await place.get(f"/apis/batch/v1/namespaces/{place.namespace}/jobs"))["items"]
    first = min(job["metadata"]["creationTimestamp"] for job in jobs)
    assert config_map.metadata.creation_timestamp.strftime("%Y-%m-%dT%H:%M:%SZ") <= first

    async def may_watch():
        try:
            page = await account_client.list_page(
                ConfigMap, place.namespace, field_selector=f"metadata.name={MAP}"
            )
        except ForbiddenError:
            return False  # the API server loads the Role a little later
        return len(page.items) == 1

    await eventually(may_watch, 10)
    with pytest.raises(ForbiddenError):
        await account_client.list_page(ConfigMap, place.namespace)


async def test_startup_group_is_released_when_its_last_pod_has_started(place, manager):
    """By one write for any number of pods; the condition reports it."""
    await place.create(replicated_job("w", 2, 3), replicated_job("x"))
    names = [f"w-{job}-{pod}" for job in range(2) for pod in range(3)]
    pods = await place.has_pods(*names, "x-0-0")
    before = manager["patch configmaps"]
    await place.start(*(pods[name] for name in names))
    await place.reaches_condition(keys.GROUP_IN_PROGRESS_CONDITION)
    assert await place.value() is None

    await place.start(pods["x-0-0"])
    await place.is_released(1)
    await place.reaches_condition(keys.GROUP_COMPLETED_CONDITION)
    patches = manager["patch configmaps"] - before
    assert 1 <= patches <= 2  # one may report the progress of the group


async def test_recreated_group_waits_again(place):
    """The old value remains in the ConfigMap and does not count."""
    await place.create(replicated_job("w", 2), failurePolicy={"maxRestarts": 2}, config={})
    pods = await place.has_pods("w-0-0", "w-1-0", attempt=1)
    await place.start(*pods.values())
    await place.is_released(1)
    await place.fail(pods["w-0-0"])
    pods = await place.has_pods("w-0-0", "w-1-0", attempt=2)
    await place.start(pods["w-0-0"])
    await asyncio.sleep(0.3)
    assert await place.value() == 1

    await place.start(pods["w-1-0"])
    await place.is_released(2)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"config": {"targetReplicatedJobs": ["y"]}}, "does not appear in .spec.replicatedJobs"),
        ({"startupPolicy": {"startupPolicyOrder": "InOrder"}}, "must not be InOrder"),
        ({"config": {"timeoutAfterSeconds": 0}}, "greater than or equal to 1"),
    ],
)
async def test_invalid_group_is_refused(place, spec, message):
    """By the webhook or the CRD."""
    with pytest.raises(InvalidError, match=message):
        await place.create(replicated_job("w"), replicated_job("x"), **spec)


async def test_group_starts_when_the_seats_of_its_jobs_can_be_filled(place):
    """With the annotation a late spare does not hold it back; spares count for their own Job only."""
    body = replicated_job("w", 2, 2)
    del body["template"]["spec"]["backoffLimit"]
    notes = {
        keys.IN_PLACE_AGENT_ANNOTATION: "supervisor",
        keys.IN_PLACE_PROCESSES_ANNOTATION: "1",
        keys.IN_PLACE_SPARES_ANNOTATION: "1",
        keys.START_WITHOUT_SPARES_ANNOTATION: "true",
    }
    container = body["template"]["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["work"]
    policy = {"maxRestarts": 1, "restartStrategy": "InPlaceRestart"}
    await place.account(keys.AGENT_NAME)
    await place.create(body, notes=notes, failurePolicy=policy, config={})
    pods = await place.has_pods(*(f"w-{job}-{pod}" for job in range(2) for pod in range(3)))
    assert {pod["metadata"]["annotations"][keys.GROUP_SIZE] for pod in pods.values()} == {"4"}
    await place.start(*(pods[name] for name in ("w-0-0", "w-0-1", "w-0-2", "w-1-2")))
    await place.reaches_condition(keys.GROUP_IN_PROGRESS_CONDITION)
    assert await place.value() is None

    await place.start(pods["w-1-0"])
    await place.is_released(1)
