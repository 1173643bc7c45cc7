"""The user stories of KEP-262 with the real Job controller: exit codes in, decisions out.

There are no nodes, so the tests end the pods; everything from a pod's exit code to the JobSet's
end is real. Limits are lower than in the KEP, to be reached in seconds.
"""

import pytest
import pytest_asyncio
from checklist_kit import NAME, Scenario, bare_jobset, rule

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.client import HttpRequest
from jobsetpy.errors import NotFoundError
from jobsetpy.testing import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CLUSTER = "cluster"
SIGTERM = 143
UNCOUNTED = "RestartJobSetAndIgnoreMaxRestarts"


class Story(Scenario):
    """A scenario in which the test plays the kubelet, and nothing more."""

    limit_s = 25.0

    async def running(self, jobs: dict[str, int], attempt: int) -> None:
        """Wait until the JobSet has exactly these Jobs with so many pods, all at ``attempt``."""

        async def check() -> None:
            assert await self.attempts() == (dict.fromkeys(jobs, attempt), set())
            found = dict.fromkeys(jobs, 0)
            for pod in (await self.read_all(Pod)).values():
                labels = pod["metadata"]["labels"]
                assert labels[keys.RESTART_ATTEMPT] == str(attempt)
                found[labels["batch.kubernetes.io/job-name"]] += 1
            assert found == jobs

        await self.until(check)

    async def pods(self) -> dict[str, str]:
        """UID of the only pod of each Job, as far as all of them have one at work."""
        label = "batch.kubernetes.io/job-name"
        return {
            pod["metadata"]["labels"][label]: pod["metadata"]["uid"]
            for pod in (await self.read_all(Pod)).values()
            if "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("phase") not in {"Failed", "Succeeded"}
        }

    async def until_pods(self, *names: str, other_than: tuple[str, ...] = ()) -> dict[str, str]:
        """Wait until exactly these Jobs have a pod at work, none of those listed by UID; them."""
        found: dict[str, str] = {}

        async def check() -> None:
            nonlocal found
            found = await self.pods()
            assert found.keys() == set(names)
            assert not set(found.values()) & set(other_than)

        await self.until(check)
        return found

    async def exit(self, job: str, code: int) -> None:
        """End one pod of a Job with an exit code."""
        pods = (await self.read_all(Pod)).items()
        (name, *_) = [
            name
            for name, pod in pods
            if pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == job
        ]
        word = "Error" if code else "Completed"
        ended = {
            "name": "main",
            "image": "example/main",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "reason": word}},
        }
        body = {
            "status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [ended]}
        }
        await self.client.merge_patch(Pod, self.namespace, name, body, subresource="status")


@pytest_asyncio.fixture(loop_scope="module")
async def story(js):
    """A namespace in which pods can be created."""
    path = f"/api/v1/namespaces/{js.namespace}/serviceaccounts/default"

    async def there() -> bool:
        try:
            await js.client.raw(HttpRequest(method="GET", path=path))
        except NotFoundError:
            return False
        return True

    await eventually(there, 20, poll_s=0.1)
    return Story(js.client, js.manager, js.namespace)


def fail_job_on(operator: str, *codes: int) -> dict:
    """A ``podFailurePolicy`` that fails the Job at once on such exit codes."""
    match = {"containerName": "main", "operator": operator, "values": list(codes)}
    return {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": match}]}}


def job(replicated: str, index: int = 0) -> str:
    """Name of a Job."""
    return f"{NAME}-{replicated}-{index}"


async def test_story_1_a_bug_is_not_retried(story):
    """Host maintenance restarts the JobSet, an error of the application ends it at once."""
    await story.create(
        bare_jobset()
        .failure_policy(max_restarts=10, rules=[rule("FailJobSet", reasons=["PodFailurePolicy"])])
        .replicated_job("main", job=fail_job_on("NotIn", SIGTERM))
    )
    await story.running({job("main"): 1}, 0)
    await story.exit(job("main"), SIGTERM)
    await story.running({job("main"): 1}, 1)
    assert await story.condition("RestartingJobSet") == ("True", "DefaultFailurePolicy")

    await story.exit(job("main"), 1)
    await story.until_failed("FailJobSetFailurePolicyAction")
    assert await story.restarts() == (1, 1)


async def test_story_2_all_workers_restart_together(story):
    """Any worker's failure restarts all pods of all Jobs, but only so many times."""
    jobs = {job("workers", 0): 2, job("workers", 1): 2}
    await story.create(
        bare_jobset()
        .failure_policy(max_restarts=1, rules=[rule("RestartJobSet")])
        .replicated_job("workers", replicas=2, parallelism=2)
    )
    await story.running(jobs, 0)
    before = {pod["metadata"]["uid"] for pod in (await story.read_all(Pod)).values()}
    await story.exit(job("workers", 1), 1)
    await story.running(jobs, 1)
    after = {pod["metadata"]["uid"] for pod in (await story.read_all(Pod)).values()}
    assert not before & after

    await story.exit(job("workers", 0), 1)
    await story.until_failed("ReachedMaxRestarts")
    assert await story.restarts() == (1, 1)


async def test_story_3_maintenance_costs_no_restart(story):
    """Restarts for host maintenance are unlimited, those for any other failure are not."""
    await story.create(
        bare_jobset()
        .failure_policy(max_restarts=1, rules=[rule(UNCOUNTED, reasons=["PodFailurePolicy"])])
        .replicated_job("workers", job=fail_job_on("In", SIGTERM))
    )
    codes = [(SIGTERM, (1, 0)), (SIGTERM, (2, 0)), (1, (3, 1)), (SIGTERM, (4, 1))]
    for attempt, (code, restarts) in enumerate(codes):
        await story.running({job("workers"): 1}, attempt)
        await story.exit(job("workers"), code)
        await story.until_restarts(*restarts)

    await story.running({job("workers"): 1}, 4)
    await story.exit(job("workers"), 1)
    await story.until_failed("ReachedMaxRestarts")
    assert await story.restarts() == (4, 1)


async def test_story_4_each_replicated_job_has_a_policy(story):
    """Workers may restart the JobSet without limit, the parameter server only so many times."""
    jobs = {job("workers", 0): 1, job("workers", 1): 1, job("parameter-server"): 1}
    await story.create(
        bare_jobset()
        .failure_policy(
            max_restarts=1,
            rules=[
                rule(UNCOUNTED, "workersFail", targets=["workers"]),
                rule("RestartJobSet", "serverFails", targets=["parameter-server"]),
            ],
        )
        .replicated_job("workers", replicas=2)
        .replicated_job("parameter-server")
    )
    failures = [
        (job("workers", 1), "FailurePolicy_workersFail", (1, 0)),
        (job("parameter-server"), "FailurePolicy_serverFails", (2, 1)),
        (job("workers", 0), "FailurePolicy_workersFail", (3, 1)),
    ]
    for attempt, (name, reason, restarts) in enumerate(failures):
        await story.running(jobs, attempt)
        await story.exit(name, 1)
        await story.until_restarts(*restarts)
        assert await story.condition("RestartingJobSet") == ("True", reason)

    await story.running(jobs, 3)
    await story.exit(job("parameter-server"), 1)
    await story.until_failed("ReachedMaxRestarts")
    conditions = (await story.read(Job, job("parameter-server")))["status"]["conditions"]
    assert {item["type"] for item in conditions} >= {"Failed", "FailureTarget"}


async def test_partial_restart_under_a_surviving_driver(story):
    """GPU workers restart together, once for all that failed; the driver's pod lives on."""
    driver, workers = job("driver"), [job("workers", 0), job("workers", 1)]
    await story.create(
        bare_jobset()
        .success_policy("All", "driver")
        .failure_policy(
            max_restarts=1, rules=[rule("RestartReplicatedJob", "gpu", targets=["workers"])]
        )
        .replicated_job("driver")
        .replicated_job("workers", replicas=2)
    )
    before = await story.until_pods(driver, *workers)
    await story.exit(workers[1], 1)
    old = tuple(before[name] for name in workers)
    after = await story.until_pods(driver, *workers, other_than=old)

    assert after[driver] == before[driver]
    assert await story.restarts() == (0, 0)
    counts = {"jobRestarts": [1, 1], "jobRestartsCountTowardsMax": [0, 1]}
    assert await story.own_restarts() == {"workers": counts}
    await story.rests()

    await story.exit(workers[0], 1)
    await story.until_failed("ReachedMaxRestarts")


async def test_a_failed_job_may_be_left_failed(story):
    """``FailJob`` restarts nothing; the JobSet fails when all its other Jobs are finished."""
    names = [job("workers", index) for index in range(3)]
    await story.create(
        bare_jobset()
        .failure_policy(max_restarts=5, rules=[rule("FailJob", "optional")])
        .replicated_job("workers", replicas=3)
    )
    before = await story.until_pods(*names)
    await story.exit(names[1], 1)
    await story.until_counters(("workers", {"failed": 1, "active": 2}))
    await story.rests()
    assert await story.pods() == {name: before[name] for name in names if name != names[1]}

    await story.exit(names[0], 0)
    await story.until_counters(("workers", {"failed": 1, "succeeded": 1, "active": 1}))
    assert await story.is_active()

    await story.exit(names[2], 0)
    await story.until_failed("FailJobFailurePolicyAction")
    assert (await story.restarts(), await story.own_restarts()) == ((0, 0), {})


async def test_an_annotated_job_is_made_anew(story):
    """The annotation replaces one Job, counts nothing, and is told in an event."""
    names = [job("workers", 0), job("workers", 1)]
    await story.create(
        bare_jobset().failure_policy(max_restarts=0).replicated_job("workers", replicas=2)
    )
    before = await story.until_pods(*names)
    mark = {"metadata": {"annotations": {keys.RESTART_ANNOTATION: "now"}}}
    await story.client.merge_patch(Job, story.namespace, names[0], mark)
    after = await story.until_pods(*names, other_than=(before[names[0]],))

    assert after[names[1]] == before[names[1]]
    assert (await story.restarts(), await story.own_restarts()) == ((0, 0), {})

    async def told() -> None:
        assert len(await story.events("RestartRequested")) == 1

    await story.until(told)
    await story.rests()


async def test_simulations_with_good_and_bad_parameters(story):
    """Exit code 3 tries the simulation again, exit code 2 leaves it failed; the others go on.

    The Job API has no reasons of the user's own, so the rule looks at the message for the code.
    """
    names = [job("simulations", index) for index in range(3)]
    again = rule("RestartJob", "tryAgain", patterns=["with exit code 3 matching"])
    await story.create(
        bare_jobset()
        .success_policy("Any")
        .failure_policy(max_restarts=1, rules=[again, rule("FailJob", "badParameters")])
        .replicated_job("simulations", replicas=3, job=fail_job_on("In", 3))
    )
    before = await story.until_pods(*names)
    await story.exit(names[0], 2)
    await story.exit(names[1], 3)
    after = await story.until_pods(*names[1:], other_than=(before[names[1]],))

    assert after[names[2]] == before[names[2]]
    counts = {"jobRestarts": [0, 1, 0], "jobRestartsCountTowardsMax": [0, 1, 0]}
    assert await story.own_restarts() == {"simulations": counts}

    await story.exit(names[2], 2)
    await story.exit(names[1], 0)
    await story.until_completed()
