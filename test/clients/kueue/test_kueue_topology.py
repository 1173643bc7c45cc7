"""Topology-aware scheduling: Kueue chooses nodes and lifts the gate that it put on the pods."""

import pytest

from support.others.kueue_kit import jobset, pod_spec, replicated_job

pytestmark = [
    pytest.mark.clients,
    pytest.mark.cluster,
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]

GATE = "kueue.x-k8s.io/topology"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
HOST = "kubernetes.io/hostname"


async def test_pods_are_held_until_kueue_has_chosen_a_block(tenant):
    """All pods are in one block, also after a re-admission, on nodes with room for two each.

    The first block is full but for one pod; only the second has room for all.
    """
    block, pool = tenant.label("block"), tenant.label("pool")
    for name, where, cpu in (("a0", "a", 1), ("b0", "b", 2), ("b1", "b", 2)):
        await tenant.node(name, cpu=cpu, labels={block: where, pool: "yes"})
    topology = await tenant.topology(block, HOST)
    flavor = await tenant.flavor("flavor", pool, topologyName=topology)
    await tenant.queue((flavor, {"cpu": 8}))
    await tenant.create(
        jobset("js", replicated_job(replicas=2, pods=2, annotations={REQUIRED: block}))
    )
    pods = []
    for _ in range(2):
        pods = await tenant.until_runs("js", 4, old=pods)
        for job in await tenant.jobs("js"):
            assert [each["name"] for each in pod_spec(job)["schedulingGates"]] == [GATE]
        nodes = sorted(pod["spec"]["nodeName"] for pod in pods)
        assert nodes == sorted([f"played-b0-{tenant.id}", f"played-b1-{tenant.id}"] * 2)
        assert not any(pod["spec"].get("schedulingGates") for pod in pods)
        await tenant.activate("js", on=False)
        await tenant.until_suspended("js")
        assert all("schedulingGates" not in each for each in await tenant.templates("js"))
        await tenant.activate("js", on=True)
