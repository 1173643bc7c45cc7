"""One example of ``examples/`` at work in a namespace of its own, and what can be seen of it.

Where there are no nodes, the test plays the kubelets (`exit`, `succeed`, `ready`); everything from
a pod's exit code to the JobSet's end is real.
"""

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path

import yaml

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import PersistentVolumeClaim, Pod, Service
from jobsetpy.api.events import Event
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import HttpRequest
from jobsetpy.errors import NotFoundError
from support.cluster.install import apply_object, create_namespace
from support.patience import eventually

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
JOB_NAME = "batch.kubernetes.io/job-name"
LIMIT_S = 60.0
POLL_S = 0.25


def manifests() -> list[str]:
    """Every manifest below ``examples/``, by its path from there.

    Those for Trainer are left out: ``test/clients/trainer`` runs them with its controller.
    """
    found = sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.yaml"))
    return [path for path in found if not path.startswith("trainer/")]


def documents(path: str) -> list[dict]:
    """The objects of a manifest."""
    return [each for each in yaml.safe_load_all((EXAMPLES / path).read_text()) if each]


def now() -> str:
    """The time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Play:
    """A namespace with one example in it.

    Args:
        client: an administrator's.
        path: of the manifest, below ``examples/``.
        namespace: of this example alone.
        jobset: as the manifest has it.
    """

    def __init__(self, client, path: str, namespace: str, jobset: dict) -> None:
        self.client = client
        self.path = path
        self.namespace = namespace
        self.manifest = jobset
        self.name = jobset["metadata"]["name"]

    @classmethod
    async def open(cls, client, path: str, edit=lambda _jobset: None) -> "Play":
        """Apply a manifest in a namespace of its own, as a user would: twice, and nothing changes.

        Args:
            client: an administrator's.
            path: of the manifest, below ``examples/``.
            edit: changes the JobSet before that.
        """
        namespace = f"e-{uuid.uuid4().hex[:8]}"
        await create_namespace(client, namespace)
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"

        async def usable() -> bool:
            return await cls._there(client, account)

        await eventually(usable, LIMIT_S, poll_s=POLL_S)
        objects = documents(path)
        (jobset,) = (each for each in objects if each["kind"] == "JobSet")
        edit(jobset)
        play = cls(client, path, namespace, jobset)
        generations = set()
        for _ in range(2):
            for document in objects:
                await play.apply(document)
            generations.add((await play.jobset())["metadata"]["generation"])
        assert generations == {1}
        return play

    async def close(self) -> None:
        """Delete the example with all its pods, which no kubelet may be there to end."""
        for path in (JobSet.RESOURCE.path(self.namespace), Pod.RESOURCE.path(self.namespace)):
            body = json.dumps({"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
            await self.client.raw(HttpRequest(method="DELETE", path=path, body=body.encode()))

    @staticmethod
    async def _there(client, path: str) -> bool:
        try:
            await client.raw(HttpRequest(method="GET", path=path))
        except NotFoundError:
            return False
        return True

    async def apply(self, document: dict) -> None:
        """Apply one more object in the example's namespace."""
        document["metadata"]["namespace"] = self.namespace
        await apply_object(self.client, document)

    # -- objects ------------------------------------------------------------------------------

    async def _get(self, path: str) -> dict:
        return json.loads((await self.client.raw(HttpRequest(method="GET", path=path))).body)

    async def read_all(self, cls) -> dict[str, dict]:
        """All objects of the namespace as JSON, by name."""
        items = (await self._get(cls.RESOURCE.path(self.namespace)))["items"]
        return {item["metadata"]["name"]: item for item in items}

    async def jobset(self) -> dict:
        """The JobSet as JSON."""
        return await self._get(JobSet.RESOURCE.path(self.namespace, self.name))

    async def is_gone(self) -> bool:
        """Whether the JobSet is no more."""
        path = JobSet.RESOURCE.path(self.namespace, self.name)
        return not await self._there(self.client, path)

    async def jobs(self) -> dict[str, dict]:
        """All Jobs that are not being deleted."""
        return _alive(await self.read_all(Job))

    async def pods(self, *jobs: str) -> dict[str, dict]:
        """Pods of these Jobs, or of all, that have not ended and are not being deleted."""
        pods = _alive(await self.read_all(Pod))
        return {
            name: pod
            for name, pod in pods.items()
            if pod["status"]["phase"] not in {"Failed", "Succeeded"}
            and (not jobs or pod["metadata"]["labels"][JOB_NAME] in jobs)
        }

    async def services(self) -> dict[str, dict]:
        """All Services."""
        return await self.read_all(Service)

    async def claims(self) -> dict[str, dict]:
        """All volume claims that are not being deleted."""
        return _alive(await self.read_all(PersistentVolumeClaim))

    async def change(self, body: dict) -> None:
        """Merge a patch into the JobSet, as its user."""
        await self.client.merge_patch(JobSet, self.namespace, self.name, body)

    def job(self, replicated: str, index: int = 0) -> str:
        """Name of a Job."""
        return f"{self.name}-{replicated}-{index}"

    def all_jobs(self) -> list[str]:
        """Names of all Jobs that the manifest asks for."""
        return [
            self.job(each["name"], index)
            for each in self.manifest["spec"]["replicatedJobs"]
            for index in range(each.get("replicas", 1))
        ]

    # -- what kubelets would do ---------------------------------------------------------------

    async def _pod_status(self, pod: dict, status: dict) -> None:
        name = pod["metadata"]["name"]
        body = {"status": status}
        await self.client.merge_patch(Pod, self.namespace, name, body, subresource="status")

    async def ready(self, *jobs: str) -> None:
        """Have all pods of these Jobs run and be ready."""
        for job in jobs:
            for pod in (await self.until_pods(job)).values():
                running = {"running": {"startedAt": now()}}
                conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "Initialized")]
                status = {
                    "phase": "Running",
                    "conditions": conditions,
                    "containerStatuses": [_container(c, running) for c in _containers(pod)],
                }
                await self._pod_status(pod, status)

    async def exit(self, job: str, code: int, *, index: int = 0, disrupted: bool = False) -> None:
        """End one pod of a Job.

        Args:
            job: its name.
            code: exit code of all its containers.
            index: which of the Job's pods, in order of their names.
            disrupted: whether it is marked as a pod that was evicted.
        """
        pods = await self.until_pods(job)
        await self._end(pods[sorted(pods)[index]], code, disrupted=disrupted)

    async def exit_pod(self, name: str, code: int) -> None:
        """End a pod, given by its name."""
        await self._end((await self.pods())[name], code)

    async def succeed(self, *jobs: str) -> None:
        """Have all pods of these Jobs end well."""
        for job in jobs:
            for pod in (await self.until_pods(job)).values():
                await self._end(pod, 0)

    async def _end(self, pod: dict, code: int, *, disrupted: bool = False) -> None:
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "conditions": [evicted] if disrupted else [],
            "containerStatuses": [_container(c, state) for c in _containers(pod)],
        }
        await self._pod_status(pod, status)

    # -- what there is ------------------------------------------------------------------------

    async def condition(self, kind: str) -> tuple[str, str] | None:
        """Status and reason of a condition of the JobSet."""
        for item in (await self.jobset()).get("status", {}).get("conditions", ()):
            if item["type"] == kind:
                return item["status"], item["reason"]
        return None

    async def unscheduled(self) -> dict[str, str]:
        """Why pods have no node, by their names."""
        return {
            name: str([pod["spec"].get("schedulingGates"), pod["status"].get("conditions")])
            for name, pod in (await self.pods()).items()
            if "nodeName" not in pod["spec"]
        }

    async def restarts(self) -> tuple[int, int]:
        """Restarts of the whole JobSet, and those that count."""
        status = (await self.jobset())["status"]
        return status.get("restarts", 0), status.get("restartsCountTowardsMax", 0)

    async def own_restarts(self, replicated: str) -> tuple[list[int], list[int]]:
        """Restarts of the single Jobs of a ReplicatedJob, and those that count."""
        stored = (await self.jobset())["status"]["replicatedJobsStatus"]
        (item,) = (each for each in stored if each["name"] == replicated)
        return item.get("jobRestarts", []), item.get("jobRestartsCountTowardsMax", [])

    async def failure(self, job: str) -> tuple[str, str]:
        """Reason and message of a Job's failure."""
        conditions = (await self.read_all(Job))[job]["status"]["conditions"]
        (failed,) = (each for each in conditions if each["type"] == "Failed")
        return failed["reason"], failed["message"]

    # -- waiting ------------------------------------------------------------------------------

    async def until(self, check) -> None:
        """Wait until ``check`` passes: a coroutine function that asserts."""

        async def passes() -> bool:
            await check()
            return True

        await eventually(passes, LIMIT_S, poll_s=POLL_S)

    async def until_jobs(self, *names: str) -> dict[str, dict]:
        """Wait until exactly these Jobs are there; them."""
        found: dict[str, dict] = {}

        async def check() -> None:
            nonlocal found
            found = await self.jobs()
            assert sorted(found) == sorted(names)

        await self.until(check)
        return found

    async def only_jobs(self, *names: str) -> None:
        """Exactly these Jobs are there, also when the manager has looked at the JobSet again.

        A change of the JobSet is a reason to look; a later JobSet that has its Job shows that the
        look is through.
        """
        await self.until_jobs(*names)
        mark = {"metadata": {"annotations": {"test.invalid/mark": uuid.uuid4().hex}}}
        await self.change(mark)
        witness = f"w-{uuid.uuid4().hex[:6]}"
        pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
        template = {"spec": {"suspend": True, "template": {"spec": pod}}}
        await self.apply(
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "metadata": {"name": witness},
                "spec": {
                    "suspend": True,
                    "network": {"enableDNSHostnames": False},
                    "replicatedJobs": [{"name": "x", "template": template}],
                },
            }
        )
        await self.until_jobs(*names, f"{witness}-x-0")
        await self.client.delete(JobSet, self.namespace, witness, propagation="Foreground")
        await self.until_jobs(*names)

    async def until_pods(self, *jobs: str, other_than: dict[str, dict] | None = None) -> dict:
        """Wait until these Jobs have all their pods, none of them one of ``other_than``; them."""
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
        """Wait until these Jobs and no others are there at ``attempt``, with their pods; those."""

        async def check() -> None:
            jobs = await self.read_all(Job)
            labels = {name: job["metadata"]["labels"] for name, job in jobs.items()}
            attempts = {name: int(each[keys.RESTART_ATTEMPT]) for name, each in labels.items()}
            assert attempts == dict.fromkeys(names, attempt)

        await self.until(check)
        return await self.until_pods(*names)

    async def until_condition(self, kind: str, status: str, reason: str) -> None:
        """Wait for a condition."""

        async def check() -> None:
            assert await self.condition(kind) == (status, reason)

        await self.until(check)

    async def until_completed(self) -> None:
        """Wait for the JobSet's success."""
        await self.until_condition("Completed", "True", "AllJobsCompleted")
        assert (await self.jobset())["status"]["terminalState"] == "Completed"

    async def until_failed(self, reason: str) -> None:
        """Wait for the JobSet's failure."""
        await self.until_condition("Failed", "True", reason)
        assert (await self.jobset())["status"]["terminalState"] == "Failed"

    async def until_event(self, reason: str) -> None:
        """Wait for an event of that reason."""

        async def check() -> None:
            assert reason in {each["reason"] for each in (await self.read_all(Event)).values()}

        await self.until(check)

    async def until_gone(self) -> None:
        """Wait until the JobSet, its Jobs and its pods are no more."""

        async def check() -> None:
            assert await self.is_gone()
            assert (await self.read_all(Job), await self.read_all(Pod)) == ({}, {})

        await self.until(check)


async def until_no_pods(client) -> None:
    """Wait until no pod is at work in the whole cluster."""

    async def check() -> bool:
        pods = (await client.list_page(Pod)).items
        assert [p.metadata.name for p in pods if p.status.phase in {"Pending", "Running"}] == []
        return True

    await eventually(check, LIMIT_S, poll_s=POLL_S)


def same_pods(before: dict[str, dict], after: dict[str, dict]) -> bool:
    """Whether two looks show the same pods, not only the same names."""
    return _uids(before) == _uids(after)


def of_job(pods: dict[str, dict], *jobs: str) -> dict[str, dict]:
    """Those of the pods that belong to these Jobs."""
    return {n: pod for n, pod in pods.items() if pod["metadata"]["labels"][JOB_NAME] in jobs}


def _uids(objects: dict[str, dict]) -> set[str]:
    return {each["metadata"]["uid"] for each in objects.values()}


def _alive(objects: dict[str, dict]) -> dict[str, dict]:
    return {n: each for n, each in objects.items() if "deletionTimestamp" not in each["metadata"]}


def _containers(pod: dict) -> list[str]:
    return [each["name"] for each in pod["spec"]["containers"]]


def _container(name: str, state: dict) -> dict:
    running = "running" in state
    return {
        "name": name,
        "image": "example/main",
        "imageID": "",
        "ready": running,
        "started": running,
        "restartCount": 0,
        "state": state,
    }
