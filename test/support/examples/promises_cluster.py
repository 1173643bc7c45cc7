"""Outcomes of the examples about names, volumes, placement, restarts in place and frameworks."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from jobsetpy.api import keys
from jobsetpy.api.core import ConfigMap, Node, Pod
from jobsetpy.api.jobset import JobSet
from support.cluster.pod_status import container, now
from support.examples.examples_kit import JOB_NAME, Play, of_job, same_pods

# -- names --------------------------------------------------------------------------------------


async def addresses(play: Play, *, subdomain: str, not_ready: bool = True) -> set[str]:
    """Return the addresses of all pods, once the headless Service is correct."""
    services = await play.services()
    assert set(services) == {subdomain}
    spec = services[subdomain]["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["selector"] == {keys.JOBSET_NAME: play.name}
    assert spec.get("publishNotReadyAddresses", False) is not_ready
    pods = [pod["spec"] for pod in (await play.pods()).values()]
    return {f"{pod['hostname']}.{pod['subdomain']}" for pod in pods}


async def every_pod_has_a_name(play: Play) -> None:
    """Host names and subdomain are those that the headless Service publishes."""
    jobs = play.all_jobs()
    await play.until_pods(*jobs)
    wanted = {f"talking-peers-{job}-{pod}.talking" for job in (0, 1) for pod in (0, 1)}
    assert await addresses(play, subdomain="talking") == wanted
    await play.succeed(*jobs)
    await play.until_completed()


async def subdomain_is_chosen(play: Play) -> None:
    """The Service has the subdomain's name."""
    (job,) = play.all_jobs()
    await play.until_pods(job)
    wanted = {"named-ring-node-0-0.ring", "named-ring-node-0-1.ring"}
    assert await addresses(play, subdomain="ring") == wanted
    await play.succeed(job)
    await play.until_completed()


async def names_of_ready_pods_only(play: Play) -> None:
    """The Service does not publish pods that are not ready."""
    server, client = play.all_jobs()
    await play.until_pods(server, client)
    wanted = {"when-ready-server-0-0.when-ready", "when-ready-client-0-0.when-ready"}
    assert await addresses(play, subdomain="when-ready", not_ready=False) == wanted
    await play.succeed(client)
    await play.until_completed()


async def all_have_the_coordinators_address(play: Play, address: str | None = None) -> None:
    """Jobs and pods have the coordinator's address, which is that of one of the pods."""
    address = address or "coordinated-driver-0-0.coordinated"
    jobs = await play.until_jobs(*play.all_jobs())
    pods = await play.until_pods(*jobs)
    for each in (*jobs.values(), *pods.values()):
        assert each["metadata"]["labels"][keys.COORDINATOR] == address
        assert each["metadata"]["annotations"][keys.COORDINATOR] == address
    assert address in await addresses(play, subdomain=play.name)


async def coordinator_is_found(play: Play) -> None:
    """All have its address; the JobSet ends with the workers."""
    await all_have_the_coordinators_address(play)
    await play.succeed(play.job("workers"))
    await play.until_completed()


# -- volumes ------------------------------------------------------------------------------------


def mounted(pod: dict) -> dict[str, str]:
    """Return the claims by the names of a pod's volumes."""
    return {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }


async def one_claim_is_deleted_and_one_retained(play: Play) -> None:
    """Claims are created, mounted where they are named, and kept or deleted by their policies."""
    writer, reader = play.all_jobs()
    scratch, results = "scratch-with-volumes", "results-with-volumes"
    (pod,) = (await play.until_pods(writer)).values()
    assert set(await play.claims()) == {scratch, results}
    assert mounted(pod) == {"scratch": scratch}
    await play.succeed(writer)
    (pod,) = (await play.until_pods(reader)).values()
    assert mounted(pod) == {"scratch": scratch, "results": results}
    await play.succeed(reader)
    await play.until_completed()

    await play.client.delete(JobSet, play.namespace, play.name, propagation="Foreground")
    await play.until_gone()

    async def one_left() -> None:
        assert set(await play.claims()) == {results}

    await play.until(one_left)


# -- places -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def nodes_in(
    play: Play, label: str, *domains: str, size: int = 2
) -> AsyncIterator[Callable[[], Awaitable[dict[str, list[str]]]]]:
    """Create ready nodes in each topology domain, without a kubelet.

    Yields:
        A function that returns the domains of the scheduled pods by Job.
    """
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "50"}
    ready = {"type": "Ready", "status": "True", "reason": "Test"}
    ready |= {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
    domain_of = {f"{play.namespace}-{d}-{n}": d for d in domains for n in range(size)}
    for name, domain in domain_of.items():
        labels = {label: domain, "kubernetes.io/hostname": name}
        metadata = {"name": name, "labels": labels}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        await play.client.create(Node, "", body)
        await play.client.merge_patch(Node, "", name, {"status": status}, subresource="status")
        await play.client.merge_patch(Node, "", name, {"spec": {"taints": None}})

    async def found() -> dict[str, list[str]]:
        by_job: dict[str, list[str]] = {}
        for pod in (await play.pods()).values():
            if domain := domain_of.get(pod["spec"].get("nodeName", "")):
                by_job.setdefault(pod["metadata"]["labels"][JOB_NAME], []).append(domain)
        return by_job

    try:
        yield found
    finally:
        for name in domain_of:
            await play.client.delete(Node, "", name)


async def each_job_has_a_rack(play: Play) -> None:
    """With one rack, one Job runs there and the other waits; with two, both run."""
    label = "topology.kubernetes.io/rack"
    jobs = play.all_jobs()
    async with nodes_in(play, label, "a") as in_a:

        async def one() -> None:
            assert list((await in_a()).values()) == [["a", "a"]]

        await play.until(one)
        (first,) = await in_a()
        (second,) = set(jobs) - {first}
        async with nodes_in(play, label, "b") as in_b:

            async def both() -> None:
                assert await in_a() == {first: ["a", "a"]}
                assert await in_b() == {second: ["b", "b"]}

            await play.until(both)


async def nodes_are_assigned(play: Play) -> None:
    """Pods select the nodes that are labelled for their Job, and tolerate their taint."""
    for name, pod in (await play.until_pods(*play.all_jobs())).items():
        job = pod["metadata"]["labels"][JOB_NAME]
        wanted = {keys.NAMESPACED_JOB_LABEL: f"{play.namespace}_{job}"}
        assert pod["spec"]["nodeSelector"] == wanted, name
        assert "affinity" not in pod["spec"]
        tolerated = {each["key"]: each for each in pod["spec"]["tolerations"]}
        taint = tolerated[keys.NO_SCHEDULE_TAINT]
        assert (taint["operator"], taint["effect"]) == ("Exists", "NoSchedule")
    await play.succeed(*play.all_jobs())
    await play.until_completed()


# -- restarts in place --------------------------------------------------------------------------


async def agents_start_and_restart_together(play: Play) -> None:
    """The group is synced when the last agent has reported; one failure deprecates the epoch."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    await play.apply({**account, "metadata": {"name": "jobset-agent"}})
    pods = sorted(await play.until_pods(*play.all_jobs()))
    assert len(pods) == 4

    async def report(epoch: int, *names: str) -> None:
        mark = {"metadata": {"annotations": {keys.EPOCH_ANNOTATION: str(epoch)}}}
        for name in names:
            await play.client.merge_patch(Pod, play.namespace, name, mark)

    async def epochs(synced: int, deprecated: int) -> None:
        async def check() -> None:
            status = (await play.stored()).get("status", {})
            found = status.get("syncedEpoch", 0), status.get("deprecatedEpoch", 0)
            assert found == (synced, deprecated)

        await play.until(check)

    first, *others = pods
    await report(1, *others)
    assert (await play.stored())["status"].get("syncedEpoch", 0) == 0
    await report(1, first)
    await epochs(1, 0)
    await report(2, first)  # its worker has failed, and it has restarted in place
    await epochs(1, 1)
    await report(2, *others)
    await epochs(2, 1)
    assert sorted(await play.pods()) == pods
    assert await play.restarts() == (0, 0)


async def agents_are_injected(play: Play) -> None:
    """The pods have an agent that is not in the manifest, and restart like other groups."""
    await agents_start_and_restart_together(play)
    for pod in (await play.pods()).values():
        (agent,) = pod["spec"]["initContainers"]
        assert agent["name"] == "jobset-agent"
        assert pod["spec"]["serviceAccountName"] == "jobset-agent"


# -- groups -------------------------------------------------------------------------------------


async def last_pod_releases_the_group(play: Play) -> None:
    """The group is released when all its pods have started, in each attempt."""
    workers, logger = [play.job("workers", 0), play.job("workers", 1)], play.job("logger")
    (pod,) = (await play.until_pods(logger)).values()
    assert "initContainers" not in pod["spec"]

    async def lifted() -> str:
        signal = (await play.read_all(ConfigMap)).get("all-or-nothing-group-scheduling", {})
        return signal.get("data", {}).get("started", "")

    seen = ""
    for attempt in range(2):
        pods = await play.until_attempt(attempt, *workers, logger)
        group = sorted(of_job(pods, *workers).items())
        assert len(group) == 4
        for name, pod in group:
            (barrier,) = (each["name"] for each in pod["spec"]["initContainers"])
            assert await lifted() == seen, "one pod of the group has not started yet"
            running = {"running": {"startedAt": now()}}
            status = {"initContainerStatuses": [container(running, barrier) | {"ready": False}]}
            await play.client.merge_patch(
                Pod, play.namespace, name, {"status": status}, subresource="status"
            )

        async def lifted_again(before=seen) -> None:
            assert await lifted() != before

        await play.until(lifted_again)
        seen = await lifted()
        if not attempt:
            await play.exit(workers[1], 1)
    assert seen.split()[0] == (await play.stored())["metadata"]["uid"]
    await play.succeed(*workers)
    await play.until_completed()


# -- frameworks ---------------------------------------------------------------------------------


async def torchrun_has_its_master(play: Play) -> None:
    """Pod 0 is the master; failures restart all pods; a wrong argument does not."""
    (job,) = play.all_jobs()
    await all_have_the_coordinators_address(play, "pytorch-workers-0-0.pytorch")
    await play.exit(job, 1, index=3)
    await play.until_attempt(1, job)
    assert await play.restarts() == (1, 1)
    await play.exit(job, 42, index=2)
    await play.until_failed("FailJobSetFailurePolicyAction")


async def each_slice_has_a_node_pool(play: Play) -> None:
    """Each Job's pods are in one pool, and all have the coordinator's address."""
    jobs = play.all_jobs()
    async with nodes_in(play, "example.com/node-pool", "x", "y") as pools:

        async def placed() -> None:
            found = await pools()
            assert set(found) == set(jobs), await play.unscheduled()
            assert sorted(found.values()) == [["x", "x"], ["y", "y"]]

        await play.until(placed)
        await all_have_the_coordinators_address(play, "jax-slice-0-0.jax")
        await play.succeed(*jobs)
        await play.until_completed()


async def each_slice_knows_the_others(play: Play) -> None:
    """Each slice's leader asks for a node pool of its own; all pods have the coordinator."""
    jobs = play.all_jobs()
    for pod in (await play.until_pods(*jobs)).values():
        spec = pod["spec"]
        assert {"gke-tpu-accelerator", "gke-tpu-topology"} <= {
            key.rpartition("/")[2] for key in spec["nodeSelector"]
        }
        if pod["metadata"]["labels"][keys.COMPLETION_INDEX_LABEL] == "0":
            (own,) = spec["affinity"]["podAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"
            ]
            assert own["topologyKey"] == "cloud.google.com/gke-nodepool"
    await all_have_the_coordinators_address(play, "multislice-slice-0-0.multislice")
    await play.succeed(*jobs)
    await play.until_completed()


async def chief_ends_the_training(play: Play) -> None:
    """Servers start first; only a failed worker is replaced; the JobSet ends with the chief."""
    servers, chief = play.job("ps"), play.job("chief")
    workers = [play.job("worker", 0), play.job("worker", 1)]
    await play.only_jobs(servers)
    await play.ready(servers)
    before = await play.until_pods(servers, *workers, chief)
    found = await addresses(play, subdomain="tf")
    script = next(iter(before.values()))["spec"]["containers"][0]["command"][2]
    assert all(f"{address}:2222" in script for address in found)

    await play.exit(workers[1], 1)
    await play.until_pods(workers[1], other_than=of_job(before, workers[1]))
    rest = (servers, workers[0], chief)
    assert same_pods(await play.pods(*rest), of_job(before, *rest))
    assert await play.own_restarts("worker") == ([0, 1], [0, 1])

    await play.succeed(chief)
    await play.until_completed()
    await play.until_jobs(chief)


async def workers_join_the_head(play: Play) -> None:
    """The head starts first; lost workers are replaced; the JobSet ends with the head."""
    head, workers = play.all_jobs()
    await play.only_jobs(head)
    await play.ready(head)
    before = await play.until_pods(head, workers)
    await all_have_the_coordinators_address(play, "ray-head-0-0.ray")
    await play.exit(workers, 1)
    await play.until_pods(workers, other_than=of_job(before, workers))
    assert same_pods(await play.pods(head), of_job(before, head))
    assert await play.own_restarts("workers") == ([1], [1])
    await play.succeed(head)
    await play.until_completed()
    await play.until_jobs(head)


async def steps_share_a_volume(play: Play) -> None:
    """Two downloads, then the trainer, then the evaluator, each with the volumes that it names."""
    dataset, model, trainer, evaluator = play.all_jobs()
    workspace, results = "workspace-fine-tuning", "results-fine-tuning"
    before = await play.until_pods(dataset, model)
    assert set(await play.claims()) == {workspace, results}
    await play.exit(model, 1)
    await play.until_pods(model, other_than=of_job(before, model))
    assert same_pods(await play.pods(dataset), of_job(before, dataset))
    assert await play.own_restarts("model") == ([1], [1])

    await play.succeed(dataset)
    await play.only_jobs(dataset, model)
    await play.succeed(model)
    for pod in (await play.until_pods(trainer)).values():
        assert mounted(pod) == {"workspace": workspace, "results": results}
    await play.succeed(trainer)
    for pod in (await play.until_pods(evaluator)).values():
        assert mounted(pod) == {"results": results}
    await play.succeed(evaluator)
    await play.until_completed()
    assert await play.restarts() == (0, 0)


PROMISES = {
    "coordinator/coordinator.yaml": coordinator_is_found,
    "exclusive-placement/node-selector.yaml": nodes_are_assigned,
    "group-scheduling/all-or-nothing.yaml": last_pod_releases_the_group,
    "in-place-restart/exit-codes.yaml": agents_start_and_restart_together,
    "in-place-restart/injected-sidecar.yaml": agents_are_injected,
    "in-place-restart/injected-supervisor.yaml": agents_are_injected,
    "in-place-restart/sidecar.yaml": agents_start_and_restart_together,
    "in-place-restart/supervised.yaml": agents_start_and_restart_together,
    "ml/driver-workers.yaml": workers_join_the_head,
    "ml/parameter-server.yaml": chief_ends_the_training,
    "ml/pipeline.yaml": steps_share_a_volume,
    "ml/pytorch.yaml": torchrun_has_its_master,
    "ml/tpu-multislice.yaml": each_slice_knows_the_others,
    "network/host-names.yaml": every_pod_has_a_name,
    "network/ready-only.yaml": names_of_ready_pods_only,
    "network/subdomain.yaml": subdomain_is_chosen,
    "volumes/claims.yaml": one_claim_is_deleted_and_one_retained,
}
WITH_NODES = {
    "exclusive-placement/one-job-per-rack.yaml": each_job_has_a_rack,
    "ml/jax.yaml": each_slice_has_a_node_pool,
}
"""These create nodes. No kubelet confirms the end of pods that are scheduled there, so nothing else may
run at the same time."""
