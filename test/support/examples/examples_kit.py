"""One example of ``examples/`` in its own namespace, and its observable state.

Where there are no nodes, the test plays the kubelets (`exit`, `succeed`, `ready`); everything from a
pod's exit code to the JobSet's end is real.
"""

import uuid
from pathlib import Path

import yaml

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import PersistentVolumeClaim, Pod, Service
from jobsetpy.api.events import Event
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import RetryableApiError, TransportError
from support.cluster import objects, pod_status
from support.cluster.install import (
    apply_object,
    create_usable_namespace,
    install_agent_account,
)
from support.cluster.json_api import StoredJobSet, send
from support.patience import eventually

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
JOB_NAME = "batch.kubernetes.io/job-name"


def manifests() -> list[str]:
    """Return every manifest below ``examples/``, by its path from there.

    Those for Trainer are left out: ``test/clients/trainer`` runs them with its controller.
    """
    found = sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.yaml"))
    return [path for path in found if not path.startswith("trainer/")]


def documents(path: str) -> list[dict]:
    """Return the objects of a manifest."""
    return [each for each in yaml.safe_load_all((EXAMPLES / path).read_text()) if each]


class Play(StoredJobSet):
    """A namespace with one example.

    Args:
        client: an administrator's.
        path: of the manifest, below ``examples/``.
        namespace: of this example only.
        jobset: as in the manifest.
    """

    limit_s, poll_s = 60.0, 0.25

    def __init__(self, client, path: str, namespace: str, jobset: dict) -> None:
        super().__init__(client, namespace, jobset["metadata"]["name"])
        self.path = path
        self.manifest = jobset

    @classmethod
    async def open(cls, client, path: str, edit=lambda _jobset: None) -> "Play":
        """Apply a manifest in its own namespace, as a user would: twice, which changes nothing.

        Args:
            client: an administrator's.
            path: of the manifest, below ``examples/``.
            edit: changes the JobSet before it is applied.
        """
        namespace = f"e-{uuid.uuid4().hex[:8]}"
        await create_usable_namespace(client, namespace)
        objects = documents(path)
        (jobset,) = (each for each in objects if each["kind"] == "JobSet")
        edit(jobset)
        if "config/agent/account" in (EXAMPLES / path).read_text():  # its header says so
            await install_agent_account(client, namespace)
        play = cls(client, path, namespace, jobset)
        generations = set()
        for _ in range(2):
            for document in objects:
                await play.apply(document)
            generations.add((await play.stored())["metadata"]["generation"])
        assert generations == {1}
        return play

    async def close(self) -> None:
        """Delete the example with all its pods, even if no kubelet ends them."""
        for path in (JobSet.RESOURCE.path(self.namespace), Pod.RESOURCE.path(self.namespace)):
            options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
            await send(self.client, "DELETE", path, options)

    async def apply(self, document: dict) -> None:
        """Apply another object in the example's namespace.

        It is applied again while the server or a webhook does not answer, as on a machine that other
        tests keep busy: the answer to one such request says nothing about the example.
        """
        document["metadata"]["namespace"] = self.namespace

        async def applied() -> bool:
            try:
                await apply_object(self.client, document)
            except (RetryableApiError, TransportError) as error:
                raise AssertionError(str(error)) from error
            return True

        await eventually(applied, self.limit_s, poll_s=1.0)

    # -- objects ------------------------------------------------------------------------------

    async def stored(self) -> dict:
        """Return the JobSet as JSON."""
        return await self.read(JobSet, self.name)

    async def jobs(self) -> dict[str, dict]:
        """Return all Jobs that are not being deleted."""
        return _alive(await self.read_all(Job))

    async def pods(self, *jobs: str) -> dict[str, dict]:
        """Return pods of these Jobs, or of all, that have not ended and are not being deleted."""
        pods = _alive(await self.read_all(Pod))
        return {
            name: pod
            for name, pod in pods.items()
            if pod["status"]["phase"] not in {"Failed", "Succeeded"}
            and (not jobs or pod["metadata"]["labels"][JOB_NAME] in jobs)
        }

    async def services(self) -> dict[str, dict]:
        """Return all Services."""
        return await self.read_all(Service)

    async def claims(self) -> dict[str, dict]:
        """Return all volume claims that are not being deleted."""
        return _alive(await self.read_all(PersistentVolumeClaim))

    def job(self, replicated: str, index: int = 0) -> str:
        """Return the name of a Job."""
        return f"{self.name}-{replicated}-{index}"

    def all_jobs(self) -> list[str]:
        """Return the names of all Jobs of the manifest."""
        return [
            self.job(each["name"], index)
            for each in self.manifest["spec"]["replicatedJobs"]
            for index in range(each.get("replicas", 1))
        ]

    # -- actions of kubelets ------------------------------------------------------------------

    async def _pod_status(self, pod: dict, status: dict) -> None:
        name = pod["metadata"]["name"]
        body = {"status": status}
        await self.client.merge_patch(Pod, self.namespace, name, body, subresource="status")

    async def ready(self, *jobs: str) -> None:
        """Let all pods of these Jobs run and be ready."""
        for job in jobs:
            for pod in (await self.until_pods(job)).values():
                await self._pod_status(pod, pod_status.running(*_containers(pod)))

    async def exit(self, job: str, code: int, *, index: int = 0, disrupted: bool = False) -> None:
        """End one pod of a Job.

        Args:
            job: its name.
            code: exit code of all its containers.
            index: of the pod among the Job's pods, in order of their names.
            disrupted: True to mark the pod as evicted.
        """
        pods = await self.until_pods(job)
        await self._end(pods[sorted(pods)[index]], code, disrupted=disrupted)

    async def exit_pod(self, name: str, code: int) -> None:
        """End a pod, given by its name."""
        await self._end((await self.pods())[name], code)

    async def succeed(self, *jobs: str) -> None:
        """Let all pods of these Jobs succeed."""
        for job in jobs:
            for pod in (await self.until_pods(job)).values():
                await self._end(pod, 0)

    async def _end(self, pod: dict, code: int, *, disrupted: bool = False) -> None:
        evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        status = pod_status.ended(code, *_containers(pod))
        await self._pod_status(pod, status | ({"conditions": [evicted]} if disrupted else {}))

    # -- the stored objects -------------------------------------------------------------------

    async def unscheduled(self) -> dict[str, str]:
        """Return the reasons why pods have no node, by name."""
        return {
            name: str([pod["spec"].get("schedulingGates"), pod["status"].get("conditions")])
            for name, pod in (await self.pods()).items()
            if "nodeName" not in pod["spec"]
        }

    async def own_restarts(self, replicated: str) -> tuple[list[int], list[int]]:
        """Return the restarts of the single Jobs of a ReplicatedJob, and of those that count."""
        stored = (await self.stored())["status"]["replicatedJobsStatus"]
        (item,) = (each for each in stored if each["name"] == replicated)
        return item.get("jobRestarts", []), item.get("jobRestartsCountTowardsMax", [])

    async def failure(self, job: str) -> tuple[str, str]:
        """Return reason and message of a Job's failure."""
        conditions = (await self.read_all(Job))[job]["status"]["conditions"]
        (failed,) = (each for each in conditions if each["type"] == "Failed")
        return failed["reason"], failed["message"]

    # -- waiting ------------------------------------------------------------------------------

    async def until_jobs(self, *names: str) -> dict[str, dict]:
        """Wait until exactly these Jobs exist; return them."""
        found: dict[str, dict] = {}

        async def check() -> None:
            nonlocal found
            found = await self.jobs()
            assert sorted(found) == sorted(names)

        await self.until(check)
        return found

    async def only_jobs(self, *names: str) -> None:
        """Check that exactly these Jobs exist after the manager has reconciled the JobSet again.

        A change of the JobSet causes a reconcile; when a later JobSet has its Job, the reconcile is over.
        """
        await self.until_jobs(*names)
        mark = {"metadata": {"annotations": {"test.invalid/mark": uuid.uuid4().hex}}}
        await self.change(mark)
        witness = f"w-{uuid.uuid4().hex[:6]}"
        pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
        job = objects.replicated_job(pod, name="x", suspend=True)
        network = {"enableDNSHostnames": False}
        await self.apply(objects.jobset(witness, job, suspend=True, network=network))
        await self.until_jobs(*names, f"{witness}-x-0")
        await self.client.delete(JobSet, self.namespace, witness, propagation="Foreground")
        await self.until_jobs(*names)

    async def until_pods(self, *jobs: str, other_than: dict[str, dict] | None = None) -> dict:
        """Wait until these Jobs have all their pods, none of them of ``other_than``; return them."""
        old = _uids(other_than or {})
        found: dict[str, dict] = {}

        async def check() -> None:
            nonlocal found
            existing = await self.jobs()
            assert set(jobs) <= existing.keys()
            found = await self.pods(*jobs)
            assert len(found) == sum(existing[job]["spec"]["parallelism"] for job in jobs)
            assert not old & _uids(found)

        await self.until(check)
        return found

    async def until_attempt(self, attempt: int, *names: str) -> dict[str, dict]:
        """Wait until only these Jobs exist, with ``attempt``; return their pods."""

        async def check() -> None:
            jobs = await self.read_all(Job)
            labels = {name: job["metadata"]["labels"] for name, job in jobs.items()}
            attempts = {name: int(each[keys.RESTART_ATTEMPT]) for name, each in labels.items()}
            assert attempts == dict.fromkeys(names, attempt)

        await self.until(check)
        return await self.until_pods(*names)

    async def until_event(self, reason: str) -> None:
        """Wait for an event with a reason."""

        async def check() -> None:
            assert reason in {each["reason"] for each in (await self.read_all(Event)).values()}

        await self.until(check)

    async def until_gone(self) -> None:
        """Wait until the JobSet, its Jobs and its pods are deleted."""

        async def check() -> None:
            assert await self.is_gone()
            assert (await self.read_all(Job), await self.read_all(Pod)) == ({}, {})

        await self.until(check)


async def until_no_pods(client) -> None:
    """Wait until no pod runs in the whole cluster."""

    async def check() -> bool:
        pods = (await client.list_page(Pod)).items
        assert [p.metadata.name for p in pods if p.status.phase in {"Pending", "Running"}] == []
        return True

    await eventually(check, Play.limit_s, poll_s=Play.poll_s)


def same_pods(before: dict[str, dict], after: dict[str, dict]) -> bool:
    """Return whether two reads show the same pods, not only the same names."""
    return _uids(before) == _uids(after)


def of_job(pods: dict[str, dict], *jobs: str) -> dict[str, dict]:
    """Return the pods that belong to these Jobs."""
    return {n: pod for n, pod in pods.items() if pod["metadata"]["labels"][JOB_NAME] in jobs}


def _uids(objects: dict[str, dict]) -> set[str]:
    return {each["metadata"]["uid"] for each in objects.values()}


def _alive(objects: dict[str, dict]) -> dict[str, dict]:
    return {n: each for n, each in objects.items() if "deletionTimestamp" not in each["metadata"]}


def _containers(pod: dict) -> list[str]:
    return [each["name"] for each in pod["spec"]["containers"]]
