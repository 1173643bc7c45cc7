"""Topology-aware scheduling: Kueue chooses nodes and removes its scheduling gate."""

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from support.cluster.json_api import exchange
from support.others.kueue_kit import QUEUE, QUEUE_LABEL, jobset, pod_spec, replicated_job
from support.others.marks import client_marks

pytestmark = client_marks()

GATE = "kueue.x-k8s.io/topology"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
HOST = "kubernetes.io/hostname"


async def test_pods_are_gated_until_kueue_has_chosen_a_block(tenant):
    """All pods are in one block, after a re-admission too, two on each node.

    The first block has capacity for one pod, the second for all.
    """
    block, pool = tenant.label("block"), tenant.label("pool")
    for name, where, cpu in (("a0", "a", 1), ("b0", "b", 2), ("b1", "b", 2)):
        await tenant.node(name, cpu=cpu, labels={block: where, pool: "yes"})
    topology = await tenant.topology(block, HOST)
    flavor = await tenant.flavor("flavor", pool, topologyName=topology)
    await tenant.queue((flavor, {"cpu": 8}))
    job = replicated_job(replicas=2, pods=2, annotations={REQUIRED: block})
    await tenant.create(jobset("js", job))
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


SLICES = {
    "kueue.x-k8s.io/podset-unconstrained-topology": "true",
    "kueue.x-k8s.io/podset-slice-size": "2",
}
SLICE_REQUIRED = "kueue.x-k8s.io/podset-slice-required-topology"


async def exclusive_and_sliced(tenant, cpu):
    """Create two Jobs of two pods with both kinds of placement; return the warnings and the label.

    Args:
        tenant: tenant of the Jobs.
        cpu: capacity of each of two blocks of one node each.
    """
    block, pool = tenant.label("block"), tenant.label("pool")
    for where in ("a", "b"):
        await tenant.node(where, cpu=cpu, labels={block: where, pool: "yes"})
    topology = await tenant.topology(block, HOST)
    flavor = await tenant.flavor("flavor", pool, topologyName=topology)
    await tenant.queue((flavor, {"cpu": 8}))
    notes = {**SLICES, SLICE_REQUIRED: block}
    exclusive = {keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: block}
    body = jobset(
        "js", replicated_job(replicas=2, pods=2, annotations=notes), annotations=exclusive
    )
    body["metadata"]["labels"] = {QUEUE_LABEL: QUEUE}
    path = JobSet.RESOURCE.path(tenant.namespace)
    made = await exchange(tenant.client, "POST", path, body)
    return made.headers.get("warning", ""), block


async def test_exclusive_job_waits_when_kueue_gives_it_the_domain_of_another(tenant):
    """The warning is right: the scheduler reports the reason, and no two Jobs share a domain.

    Without the annotation, each admission runs.
    """
    warning, _ = await exclusive_and_sliced(tenant, cpu=4)
    assert "stay pending" in warning

    async def one_waits():
        pods = await tenant.pods("js")
        reasons = [
            each.get("message", "")
            for pod in pods
            for each in pod["status"].get("conditions", ())
            if each["type"] == "PodScheduled" and each["status"] == "False"
        ]
        running = {
            pod["metadata"]["labels"][keys.JOB_INDEX]
            for pod in pods
            if pod["status"]["phase"] == "Running"
        }
        return len(running) == 1 and any("anti-affinity" in each for each in reasons)

    await tenant.until(one_waits, "one Job to run and the other to wait")
    assert (await tenant.jobset("js"))["status"]["state"] == "Waiting"
    await tenant.delete("js")

    block = tenant.label("block")
    notes = {**SLICES, SLICE_REQUIRED: block}
    await tenant.create(jobset("plain", replicated_job(replicas=2, pods=2, annotations=notes)))
    await tenant.until_runs("plain", 4)
