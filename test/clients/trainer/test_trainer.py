"""TrainJobs of Kubeflow Trainer, which applies JobSets server-side, until each kind of end."""

import asyncio
import signal
import uuid

import pytest
import pytest_asyncio

from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import NotFoundError
from support import patience
from support.cluster.install import create_namespace, install_agent_account
from support.cluster.json_api import send
from support.examples.examples_kit import documents
from support.others.marks import client_marks
from support.others.trainer_install import RUNTIMES
from support.others.trainer_kit import (
    container,
    path,
    replicated_job,
    runtime,
    train_job,
    until_taken,
)
from support.restarts.scenario import SHELL_IMAGE, WORKER_SCRIPT, kill_worker

pytestmark = client_marks(timeout_s=400)

LIMIT_S = 90.0


class Project:
    """A namespace with TrainJobs."""

    def __init__(self, client, namespace):
        self.client, self.namespace = client, namespace

    async def send(self, method, what, body=None):
        return await send(self.client, method, path(self.namespace, what), body)

    async def agent_account(self):
        """Create the account of agents with its rights."""
        await install_agent_account(self.client, self.namespace)

    async def runtime(self, body):
        """Create a TrainingRuntime, and wait until Trainer's webhook has it in its cache."""
        await self.send("POST", "trainingruntimes", body)
        await self.until_taken(train_job("probe"))

    async def until_taken(self, body):
        await until_taken(self.client, self.namespace, body)

    async def train(self, body):
        await self.send("POST", "trainjobs", body)

    async def patch(self, name, **spec):
        await self.send("PATCH", f"trainjobs/{name}", {"spec": spec})

    async def conditions(self, name):
        """Return the reasons of the true conditions, by type."""
        status = (await self.send("GET", f"trainjobs/{name}")).get("status", {})
        return {
            c["type"]: c["reason"] for c in status.get("conditions", []) if c["status"] == "True"
        }

    async def ends(self, name):
        """Wait for the end of a TrainJob; return ``Complete`` or ``Failed``, and the reason."""
        end = None

        async def ended():
            nonlocal end
            found = await self.conditions(name)
            end = next((item for item in found.items() if item[0] in {"Complete", "Failed"}), None)
            return end is not None

        await patience.eventually(ended, LIMIT_S, poll_s=0.2)
        return end

    async def jobset(self, name):
        return await self.client.get(JobSet, self.namespace, name)

    async def pods(self, name=None):
        """Return its pods that are not being deleted, by name."""
        page = await self.client.list_page(Pod, self.namespace)
        return {
            pod.metadata.name: pod
            for pod in page.items
            if pod.metadata.deletion_timestamp is None
            and name in {None, pod.metadata.labels.get(keys.JOBSET_NAME)}
        }

    async def running(self, name, count):
        """Wait until it has ``count`` pods and all run; return them by name."""
        found = {}

        async def run():
            nonlocal found
            found = await self.pods(name)
            return len(found) == count and {p.status.phase for p in found.values()} == {"Running"}

        await patience.eventually(run, LIMIT_S, poll_s=0.1)
        return found


@pytest_asyncio.fixture(loop_scope="session")
async def project(client, trainer):
    """A namespace of the test's own."""
    name = f"train-{uuid.uuid4().hex[:6]}"
    await create_namespace(client, name)
    made = Project(client, name)
    # Kueue's webhooks are called some seconds after its installation.
    await made.until_taken(train_job("probe", "torch-distributed", cluster=True))
    yield made
    for each in (await made.send("GET", "trainjobs"))["items"]:
        await made.send("DELETE", f"trainjobs/{each['metadata']['name']}")


CHECKS = {
    "torch": '[ "$PET_NNODES" = 2 ] && [ -n "$PET_MASTER_ADDR" ]',
    "jax": '[ "$JAX_NUM_PROCESSES" = 2 ] && [ -n "$JAX_COORDINATOR_ADDRESS" ]',
    "xgboost": '[ "$DMLC_NUM_WORKER" = 2 ] && [ -n "$DMLC_TRACKER_URI" ]',
    "deepspeed": 'grep -q node "$OMPI_MCA_orte_default_hostfile"',
    "mlx": 'grep -q node "$OMPI_MCA_orte_default_hostfile"',
}
"""Environment that the processes of a framework expect."""


async def test_every_runtime_trains(project):
    """On two nodes each; launchers of MPI start when the other node is ready."""
    for name in RUNTIMES:
        body = train_job(name, f"{name}-distributed", CHECKS[name], cluster=True, nodes=2)
        await project.train(body)
    ends = {name: await project.ends(name) for name in RUNTIMES}
    assert {name: end[0] for name, end in ends.items()} == dict.fromkeys(RUNTIMES, "Complete")
    for name in RUNTIMES:
        jobset = await project.jobset(name)
        assert jobset.status.terminal_state == "Completed"
        assert jobset.status.restarts == 0


async def test_trainjob_is_suspended_and_resumed(project):
    """By patches of the TrainJob; the resumed JobSet completes."""
    await project.runtime(runtime())
    # A worker that ended by itself might have ended before the suspension.
    script = f"trap 'exit 0' USR1; {WORKER_SCRIPT}"
    await project.train(train_job("t", script=script, suspend=True, nodes=2))

    async def suspended():
        try:
            jobset = await project.jobset("t")
        except NotFoundError:
            return False
        found = [c for c in jobset.status.conditions if c.type == "Suspended"]
        return [c.status for c in found] == ["True"] and not await project.pods("t")

    await patience.eventually(suspended, LIMIT_S, poll_s=0.1)
    await project.patch("t", suspend=False)
    await project.running("t", 2)
    await project.patch("t", suspend=True)
    await patience.eventually(suspended, LIMIT_S, poll_s=0.1)
    assert "Suspended" in await project.conditions("t")
    await project.patch("t", suspend=False)
    for pod in (await project.running("t", 2)).values():
        await kill_worker(pod, script, number=signal.SIGUSR1)
    assert (await project.ends("t"))[0] == "Complete"
    assert (await project.jobset("t")).status.restarts == 0


async def test_example_runtime_keeps_its_promise(project):
    """Its TrainJobs restart in place; Trainer's applies keep the injected agent."""
    await project.agent_account()
    own_runtime, body = documents("trainer/torch-restart-in-place.yaml")
    (job,) = own_runtime["spec"]["template"]["spec"]["replicatedJobs"]
    (node,) = job["template"]["spec"]["template"]["spec"]["containers"]
    node |= {"image": SHELL_IMAGE, "imagePullPolicy": "IfNotPresent"}
    script = f"{WORKER_SCRIPT} # {project.namespace}"
    body["spec"]["trainer"]["command"] = ["sh", "-c", script]
    path = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
    await send(project.client, "POST", path, own_runtime)
    await project.until_taken(body)
    await project.train(body)
    name = body["metadata"]["name"]

    async def synced(epoch):
        return (await project.jobset(name)).status.synced_epoch == epoch

    async def restarts_in_place(epoch):
        pods = await project.running(name, 2)
        await patience.eventually(lambda: synced(epoch), LIMIT_S, poll_s=0.1)
        await kill_worker(next(iter(pods.values())), script, supervised=True)
        await patience.eventually(lambda: synced(epoch + 1), LIMIT_S, poll_s=0.1)
        assert uids(await project.running(name, 2)) == uids(pods)
        return pods

    before = await restarts_in_place(1)
    await project.patch(name, suspend=True)

    async def none():
        return not await project.pods(name)

    await patience.eventually(none, LIMIT_S, poll_s=0.1)
    await project.patch(name, suspend=False)

    async def all_new():
        pods = uids(await project.pods(name))
        return len(pods) == 2 and not pods & uids(before)

    await patience.eventually(all_new, LIMIT_S, poll_s=0.1)
    await project.running(name, 2)
    epoch = (await project.jobset(name)).status.synced_epoch

    async def at_rest():
        status = (await project.jobset(name)).status
        return status.synced_epoch > status.deprecated_epoch and status.synced_epoch >= epoch

    await patience.eventually(at_rest, LIMIT_S, poll_s=0.1)
    await restarts_in_place((await project.jobset(name)).status.synced_epoch)
    assert not {"Complete", "Failed"} & set(await project.conditions(name))


def uids(pods):
    return {pod.metadata.uid for pod in pods.values()}


# Its data classes use pydantic's old style, which pydantic reports at each import.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_sdk_trains_waits_and_deletes(project, cluster):
    """The functions of the Kubeflow SDK."""
    from kubeflow.common.types import KubernetesBackendConfig
    from kubeflow.trainer import CustomTrainerContainer, TrainerClient

    config = KubernetesBackendConfig(
        namespace=project.namespace, config_file=str(cluster.kubeconfig)
    )
    node = container(command=["true"])  # the SDK names an image, and no command
    await project.runtime(runtime(replicated_job(containers=[node])))

    def all_of_it():
        sdk = TrainerClient(config)
        assert {f"{name}-distributed" for name in RUNTIMES} <= {r.name for r in sdk.list_runtimes()}
        trainer = CustomTrainerContainer(image=SHELL_IMAGE, num_nodes=2)
        name = sdk.train(runtime=sdk.get_runtime("own"), trainer=trainer)
        done = sdk.wait_for_job_status(name, timeout=int(patience.scaled(LIMIT_S)))
        steps = {step.name for step in done.steps}
        sdk.delete_job(name)
        return name, done.status, steps

    name, status, steps = await asyncio.to_thread(all_of_it)
    assert (status, steps) == ("Complete", {"node-0", "node-1"})

    async def gone():
        try:
            await project.jobset(name)
        except NotFoundError:
            return not await project.pods(name)
        return False

    await patience.eventually(gone, LIMIT_S, poll_s=0.2)
