"""The most used examples on a real node, unchanged: real kubelet, real images, real names.

All run at the same time, each in a namespace of its own; a test waits for its example. Failures
that do not happen by themselves are simulated in ``test/integration/examples``.
"""

import asyncio
import contextlib
import dataclasses

import attrs
import pytest
import pytest_asyncio

from hack.images.basic import shell_image
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import NotFoundError
from support.cluster.json_api import send
from support.examples.examples_kit import Play, eventually
from support.restarts.scenario import managed

pytestmark = [
    pytest.mark.node,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]

IMAGE = "busybox:1.37"
"""Image of the examples; the node gets this machine's busybox under that name."""
CONCURRENCY = 10
LIMIT_S = 200.0


@attrs.frozen
class End:
    """Expected end of an example.

    Args:
        reason: reason of the condition ``Completed`` or ``Failed``.
        jobs: Jobs that remain, without the JobSet's name; all if None.
        restarts: restarts of the whole JobSet, and those that count.
        own: restarts of single Jobs, by ReplicatedJob.
    """

    reason: str = "AllJobsCompleted"
    jobs: set[str] | None = None
    restarts: tuple[int, int] = (0, 0)
    own: dict[str, list[int]] = attrs.field(factory=dict)

    @property
    def kind(self) -> str:
        """Type of the condition."""
        return "Completed" if self.reason == "AllJobsCompleted" else "Failed"


BUG, LEFT_FAILED = "FailJobSetFailurePolicyAction", "FailJobFailurePolicyAction"
LIMIT = "ReachedMaxRestarts"
ENDS = {
    # The slowest ones first.
    "failure-policy/host-maintenance.yaml": End(LIMIT, restarts=(2, 1)),
    "failure-policy/per-replicated-job.yaml": End(LIMIT, {"parameter-server-0"}, restarts=(2, 1)),
    "failure-policy/combined-rules.yaml": End(BUG, {"workers-0"}, restarts=(2, 1)),
    "failure-policy/restart-replicated-job.yaml": End(jobs={"driver-0"}, own={"workers": [1, 1]}),
    "failure-policy/restart-replicated-job-uncounted.yaml": End(
        jobs={"driver-0"}, own={"workers": [1, 1]}
    ),
    "startup-policy/in-order.yaml": End(jobs={"watcher-0"}),
    "depends-on/complete.yaml": End(),
    "failure-policy/blocking-recreate.yaml": End(restarts=(1, 1)),
    "failure-policy/fail-job.yaml": End(jobs={"trial-0", "trial-1"}),
    "failure-policy/failed-indexes.yaml": End(BUG),
    "failure-policy/max-restarts.yaml": End(restarts=(1, 1)),
    "failure-policy/message-patterns.yaml": End(BUG),
    "failure-policy/no-policy.yaml": End("FailedJobs", {"workers-0"}),
    "failure-policy/restart-job.yaml": End(own={"shard": [0, 1, 0]}),
    "failure-policy/restart-job-uncounted.yaml": End(own={"shard": [0, 1, 0]}),
    "failure-policy/simulations.yaml": End(LEFT_FAILED, own={"simulation": [0, 1, 0, 0]}),
    "failure-policy/unrecoverable-exit-codes.yaml": End(BUG, restarts=(1, 1)),
    "coordinator/coordinator.yaml": End(jobs={"workers-0"}),
    "depends-on/ready.yaml": End(jobs={"workers-0", "workers-1"}),
    "network/host-names.yaml": End(),
    "network/ready-only.yaml": End(jobs={"client-0"}),
    "network/subdomain.yaml": End(),
    "simple/jobset.yaml": End(),
    "success-policy/any.yaml": End(jobs={"search-1"}),
    "success-policy/target.yaml": End(jobs={"driver-0"}),
    "ttl/ttl.yaml": End(),
    "volumes/claims.yaml": End(),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(node_cluster, tmp_path_factory):
    """A client of the node's cluster, with the manager ready and the examples' image loaded."""
    archive = tmp_path_factory.mktemp("images") / "busybox.tar"
    dataclasses.replace(shell_image(), reference=IMAGE).write(archive)
    node_cluster.load_images([archive])
    async with managed(node_cluster.kubeconfig, qps=0) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plays(request, client):
    """A task for each selected example; its result is the example at its end."""
    items = [item for item in request.session.items if item.module is request.module]
    selected = {item.callspec.params["path"] for item in items if hasattr(item, "callspec")}
    slots = asyncio.Semaphore(CONCURRENCY)
    tasks = {
        path: asyncio.create_task(run(client, path, slots)) for path in ENDS if path in selected
    }
    yield tasks
    for task in tasks.values():
        task.cancel()
    for play in await asyncio.gather(*tasks.values(), return_exceptions=True):
        if not isinstance(play, BaseException):
            with contextlib.suppress(NotFoundError):
                await client.delete(JobSet, play.namespace, play.name)


async def run(client, path: str, slots: asyncio.Semaphore):
    """Run an example to its end and return it without removing anything."""
    async with slots:
        play = await Play.open(client, path)
        if path.startswith("volumes/"):
            await make_volumes(play)

        async def ended() -> bool:
            if await play.is_gone():
                return True
            return bool((await play.stored()).get("status", {}).get("terminalState"))

        await eventually(ended, LIMIT_S, poll_s=0.5)
        return play


async def make_volumes(play) -> None:
    """Create a volume for each of the two claims, as a cluster with storage would."""

    for number in range(2):
        name = f"{play.namespace}-{number}"
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": f"/var/lib/{name}", "type": "DirectoryOrCreate"},
            },
        }
        await send(play.client, "POST", "/api/v1/persistentvolumes", volume)


@pytest.mark.parametrize("path", ENDS)
async def test_example_ends_as_its_header_says(plays, path):
    """The example reaches the expected condition, restarts and remaining Jobs by itself."""
    end, play = ENDS[path], await plays[path]
    if path == "ttl/ttl.yaml":
        await play.until_gone()
        return
    assert await play.condition(end.kind) == ("True", end.reason)
    assert await play.restarts() == end.restarts
    for name, counts in end.own.items():
        assert (await play.own_restarts(name))[0] == counts
    left = play.all_jobs() if end.jobs is None else [f"{play.name}-{job}" for job in end.jobs]
    await play.until_jobs(*left)
    if path == "volumes/claims.yaml":
        await claims_go_and_stay(play)


async def claims_go_and_stay(play) -> None:
    """The claim that is to be deleted is deleted with the JobSet; the other one remains."""

    assert set(await play.claims()) == {"scratch-with-volumes", "results-with-volumes"}
    await play.client.delete(JobSet, play.namespace, play.name, propagation="Foreground")
    await play.until_gone()

    async def one_left() -> None:
        assert set(await play.claims()) == {"results-with-volumes"}

    await play.until(one_left)
