"""Migration of JobSets from the controller written in Go in each phase, and back.

The control plane and the Job controller are real; objects of the other controller, and how it reads
ours, follow the documents of its API (``support.others.go_objects``). Pods have no kubelet: the test
sets how they end.
"""

import asyncio
import json

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from support import patience
from support.cluster.account import manager_kubeconfig
from support.cluster.install import create_namespace
from support.cluster.json_api import StoredJobSet, send
from support.cluster.manager_process import ManagerProcess
from support.others import go_objects
from support.others.go_objects import condition

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(180)]

NAME = "js"
ALL = ("js-a-0", "js-b-0", "js-b-1")
LIMIT_S = 60.0
RESTARTING = condition(
    "RestartingJobSet",
    "True",
    "DefaultFailurePolicy",
    "applying RestartJobSet failure policy action (first failed job: js-b-1)",
)
SUSPENDED = condition("Suspended", "True", "SuspendedJobs", "jobset is suspended")
RESTARTED = {"restarts": 1, "restartsCountTowardsMax": 1}


class Life:
    """One JobSet, its Jobs, and the managers that control it in turn."""

    def __init__(self, client, namespace, manager):
        self.client, self.namespace, self.manager = client, namespace, manager

    async def send(self, method, path, body=None):
        return await send(self.client, method, path, body)

    async def read(self):
        return await self.send("GET", JobSet.RESOURCE.path(self.namespace, NAME))

    async def jobs(self):
        """Return the Jobs of the JobSet by name."""
        items = (await self.send("GET", Job.RESOURCE.path(self.namespace)))["items"]
        return {each["metadata"]["name"]: each for each in items}

    async def uids(self):
        return {name: job["metadata"]["uid"] for name, job in (await self.jobs()).items()}

    async def go_creates(self, **spec):
        """Create the JobSet as its user and the Go controller's webhook do."""
        path = JobSet.RESOURCE.path(self.namespace)
        return await self.send("POST", path, go_objects.jobset(NAME, **spec))

    async def go_adds(self, stored, *jobs, **more):
        """Create Jobs, each given as ``a/0``, in place of the Go controller."""
        path = Job.RESOURCE.path(self.namespace)
        for each in jobs:
            name, _, index = each.partition("/")
            await self.send("POST", path, go_objects.job(stored, name, int(index), **more))

    async def go_reports(self, *conditions, **status):
        """Replace the whole status, in place of the Go controller."""
        body = await self.read()
        body["status"] = {"restarts": 0, **status}
        if conditions:
            body["status"]["conditions"] = list(conditions)
        path = JobSet.RESOURCE.path(self.namespace, NAME, "status")
        await self.send("PUT", path, body)

    async def end(self, job, phase):
        """End a Job's pod, and return when the Job controller has noticed it."""

        async def pods():
            items = (await self.client.list_page(Pod, self.namespace)).items
            return [pod for pod in items if pod.metadata.name.startswith(f"{job}-0-")]

        (pod,) = await patience.eventually(pods, LIMIT_S, poll_s=0.1)
        path = f"{Pod.RESOURCE.path(self.namespace, pod.metadata.name)}/status"
        body = {"status": {"phase": phase}}
        await self.send("PATCH", path, body)

        async def noticed():
            status = (await self.jobs())[job]["status"]
            kinds = {each["type"] for each in status.get("conditions", ())}
            return kinds & {"Complete", "Failed"}

        await patience.eventually(noticed, LIMIT_S, poll_s=0.1)

    async def until(self, check, what):
        """Wait until the check accepts the JobSet and its Jobs."""

        async def accepted():
            return check(await self.read(), await self.jobs())

        try:
            await patience.eventually(accepted, LIMIT_S, poll_s=0.1)
        except AssertionError as error:
            error.add_note(f"waited for {what}: {json.dumps((await self.read()).get('status'))}")
            raise

    async def settled(self):
        """Return when the running manager has written nothing for a while."""
        versions = []

        async def quiet():
            jobs = await self.jobs()
            found = [await self.read(), *jobs.values()]
            versions.append([each["metadata"]["resourceVersion"] for each in found])
            return len(versions) > 10 and versions[-1] == versions[-10]

        await patience.eventually(quiet, LIMIT_S, poll_s=0.1)


@pytest.fixture
async def life(cluster, client, namespace, tmp_path):
    """A namespace, and a manager that is not started yet."""
    own = await manager_kubeconfig(client, cluster.kubeconfig, tmp_path)
    manager = ManagerProcess(own, tmp_path / "manager.log")
    yield Life(client, namespace, manager)
    await manager.stop()


def at_attempt(attempt, *names):
    """Return a check that exactly these Jobs exist, of one attempt, and none is being deleted."""

    def check(_, jobs):
        live = {
            name: job["metadata"]["labels"][keys.RESTART_ATTEMPT]
            for name, job in jobs.items()
            if "deletionTimestamp" not in job["metadata"]
        }
        return live == dict.fromkeys(names, str(attempt))

    return check


def holds(jobset, kind):
    """Return True if a condition is true."""
    found = jobset.get("status", {}).get("conditions", ())
    return any(each["type"] == kind and each["status"] == "True" for each in found)


# -- phases: each leaves a JobSet as the Go controller does; returns the expected check and restarts


async def starting(life):
    """Two of three Jobs have been created; the JobSet has no status yet."""
    stored = await life.go_creates()
    await life.go_adds(stored, "a/0", "b/0")
    return at_attempt(0, *ALL), 0


async def running(life):
    """All Jobs exist."""
    stored = await life.go_creates()
    await life.go_adds(stored, "a/0", "b/0", "b/1")
    await life.go_reports()
    return at_attempt(0, *ALL), 0


async def in_order(life):
    """The second ReplicatedJob waits for the first one."""
    stored = await life.go_creates(startupPolicy={"startupPolicyOrder": "InOrder"})
    await life.go_adds(stored, "a/0")
    what = ("InOrderStartupPolicyInProgress", "in order startup policy is in progress")
    await life.go_reports(condition("StartupPolicyInProgress", "True", *what))
    return at_attempt(0, "js-a-0"), 0


async def a_job_has_failed(life):
    """A Job has failed, and the failure was not handled yet."""
    stored = await life.go_creates()
    await life.go_adds(stored, "a/0", "b/0", "b/1")
    await life.go_reports()
    await life.end("js-b-1", "Failed")
    return at_attempt(1, *ALL), 1


async def several_jobs_have_failed(life):
    """Two Jobs have failed; the rule for the later one restarts all, and the other has no rule."""
    rule = {
        "name": "maintenance",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["BackoffLimitExceeded"],
        "targetReplicatedJobs": ["a"],
    }
    policy = {"maxRestarts": 0, "restartStrategy": "Recreate", "rules": [rule]}
    stored = await life.go_creates(failurePolicy=policy)
    await life.go_adds(stored, "a/0", "b/0", "b/1")
    await life.go_reports()
    await life.end("js-b-1", "Failed")
    await life.end("js-a-0", "Failed")
    return at_attempt(1, *ALL), 1


async def restart_counted(life):
    """The restart is in the status; all Jobs are still the old ones."""
    stored = await life.go_creates()
    await life.go_adds(stored, "a/0", "b/0", "b/1")
    await life.end("js-b-1", "Failed")
    await life.go_reports(RESTARTING, **RESTARTED)
    return at_attempt(1, *ALL), 1


async def restart_half_done(life):
    """One Job is new, one is old, one is missing."""
    stored = await life.go_creates()
    await life.go_adds(stored, "a/0", attempt=1)
    await life.go_adds(stored, "b/0")
    await life.go_reports(RESTARTING, **RESTARTED)
    return at_attempt(1, *ALL), 1


async def blocking_restart(life):
    """All Jobs have to be deleted before one is created; some are."""
    policy = {"maxRestarts": 3, "restartStrategy": "BlockingRecreate"}
    stored = await life.go_creates(failurePolicy=policy)
    await life.go_adds(stored, "b/1")
    await life.go_reports(RESTARTING, **RESTARTED)
    return at_attempt(1, *ALL), 1


async def suspended(life):
    """Nothing runs until the user resumes the JobSet."""
    stored = await life.go_creates(suspend=True)
    await life.go_adds(stored, "a/0", "b/0", "b/1", suspend=True)
    await life.go_reports(SUSPENDED)
    return (
        lambda jobset, jobs: (
            holds(jobset, "Suspended")
            and set(jobs) == set(ALL)
            and all(job["spec"]["suspend"] for job in jobs.values())
        ),
        0,
    )


async def being_suspended(life):
    """The user has suspended the JobSet; one of the Jobs is suspended."""
    stored = await life.go_creates(suspend=True)
    await life.go_adds(stored, "a/0", suspend=True)
    await life.go_adds(stored, "b/0", "b/1")
    await life.go_reports()
    return (
        lambda jobset, jobs: (
            holds(jobset, "Suspended") and all(job["spec"]["suspend"] for job in jobs.values())
        ),
        0,
    )


async def failed(life):
    """The JobSet has failed; the Jobs that still run have not been deleted yet."""
    stored = await life.go_creates(failurePolicy={"maxRestarts": 0, "restartStrategy": "Recreate"})
    await life.go_adds(stored, "a/0", "b/0", "b/1")
    await life.end("js-b-1", "Failed")
    text = "jobset failed due to reaching max number of restarts (first failed job: js-b-1)"
    has_failed = condition("Failed", "True", "ReachedMaxRestarts", text)
    await life.go_reports(has_failed, terminalState="Failed")
    return lambda jobset, jobs: set(jobs) == {"js-b-1"} and holds(jobset, "Failed"), 0


PHASES = (
    starting,
    running,
    in_order,
    a_job_has_failed,
    several_jobs_have_failed,
    restart_counted,
    restart_half_done,
    blocking_restart,
    suspended,
    being_suspended,
    failed,
)


async def take_over(life, phase, begin):
    """Check that a manager continues a phase, and hand the JobSet back.

    Args:
        life: JobSet of the phase.
        phase: function that leaves it as the Go controller does.
        begin: starts or stops the manager, when all phases have come to it.
    """
    wanted, restarts = await phase(life)
    before = await life.jobs()
    stays = {
        name: job["metadata"]["uid"]
        for name, job in before.items()
        if int(job["metadata"]["labels"][keys.RESTART_ATTEMPT]) == restarts and phase is not failed
    }

    await begin(life.manager.start)
    await life.until(wanted, phase.__name__)
    await life.settled()
    found = await life.uids()
    assert {name: found.get(name) for name in stays} == stays
    assert (await life.read())["status"].get("restarts", 0) == restarts

    # Handed back: the Go controller reads its own fields, prunes ours, and has nothing to do.
    await begin(life.manager.stop)
    stored = await life.read()
    jobs = await life.jobs()
    steps = go_objects.next_steps(stored, list(jobs.values()))
    waits = ["js-b-0", "js-b-1"] if phase is in_order else []
    assert steps == {"delete": [], "create": waits}
    kept = {k: v for k, v in stored["status"].items() if k in go_objects.STATUS_FIELDS}
    await life.go_reports(**kept)

    # Taken over again.
    await begin(life.manager.start)
    await life.settled()
    await life.until(wanted, phase.__name__)
    assert await life.uids() == found
    assert (await life.read())["status"].get("restarts", 0) == restarts


async def test_jobsets_continue_when_they_are_taken_over_and_handed_back(life):
    """No Job that may stay is replaced and no restart is counted twice, in both directions.

    A JobSet in each phase, all with the same manager: a start of one takes seconds of CPU.
    """
    arrived, gate = [], asyncio.Event()

    async def begin(change):
        nonlocal gate
        arrived.append(change)
        here = gate
        if len(arrived) == len(PHASES):
            arrived.clear()
            gate = asyncio.Event()
            await change()
            here.set()
        await here.wait()

    async with asyncio.TaskGroup() as tasks:
        for phase in PHASES:
            namespace = f"{life.namespace}-{phase.__name__.replace('_', '-')}"
            await create_namespace(life.client, namespace)
            one = Life(life.client, namespace, life.manager)
            tasks.create_task(take_over(one, phase, begin), name=phase.__name__)


async def test_finished_jobset_is_deleted_when_another_controller_manages_it(life):
    """Its Jobs are left alone until then."""
    stored = await life.go_creates(ttlSecondsAfterFinished=8, managedBy="example.com/other")
    await life.go_adds(stored, "a/0")
    await life.manager.start()
    await life.settled()
    assert set(await life.jobs()) == {"js-a-0"}

    text = "jobset completed successfully"
    await life.go_reports(condition("Completed", "True", "AllJobsCompleted", text))
    stored = StoredJobSet(life.client, life.namespace, NAME)
    await patience.eventually(stored.is_gone, LIMIT_S)
