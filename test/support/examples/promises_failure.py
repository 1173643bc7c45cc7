"""Outcomes of the examples in ``failure-policy/``, with the real Job controller.

The first functions are the user stories of KEP-262, from exit codes to decisions.
"""

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from support.examples.examples_kit import Play, of_job, same_pods

SIGTERM = 143
BUG, MAX_RESTARTS = "FailJobSetFailurePolicyAction", "ReachedMaxRestarts"
RESTARTING = "RestartingJobSet"


async def bug_is_not_retried(play: Play) -> None:
    """Story 1: host maintenance restarts the JobSet, an error of the program ends it immediately."""
    job = play.job("trainer")
    await play.exit(job, SIGTERM)
    await play.until_attempt(1, job)
    assert await play.condition(RESTARTING) == ("True", "DefaultFailurePolicy")

    await play.exit(job, 1)
    await play.until_failed(BUG)
    assert (await play.failure(job))[0] == "PodFailurePolicy"
    assert await play.restarts() == (1, 1)


async def all_workers_restart_together(play: Play) -> None:
    """Story 2: any worker's failure restarts all pods of all Jobs, up to a limit."""
    jobs = play.all_jobs()
    before = await play.until_pods(*jobs)
    assert len(before) == 4
    for attempt in (1, 2):
        await play.exit(jobs[attempt - 1], 1, index=attempt - 1)
        after = await play.until_attempt(attempt, *jobs)
        assert not same_pods(before, after)
        assert await play.restarts() == (attempt, attempt)
        assert await play.condition(RESTARTING) == ("True", "FailurePolicy_anyWorker")

    await play.exit(jobs[0], 1)
    await play.until_failed(MAX_RESTARTS)
    assert await play.restarts() == (2, 2)


async def run_exceeds_its_deadline(play: Play) -> None:
    """Running Jobs are deleted, and nothing is restarted."""
    await play.until_failed(keys.DEADLINE_EXCEEDED_REASON)
    await play.only_jobs()
    assert await play.restarts() == (0, 0)


async def maintenance_costs_no_restart(play: Play) -> None:
    """Story 3: restarts for host maintenance are unlimited, those after other failures are not."""
    job = play.job("workers")
    failures = [(SIGTERM, False, (1, 0)), (1, True, (2, 0)), (1, False, (3, 1))]
    failures.append((SIGTERM, False, (4, 1)))
    for attempt, (code, disrupted, restarts) in enumerate(failures, 1):
        await play.exit(job, code, disrupted=disrupted)
        await play.until_attempt(attempt, job)
        assert await play.restarts() == restarts

    await play.exit(job, 1)
    await play.until_failed(MAX_RESTARTS)
    assert await play.restarts() == (4, 1)


async def each_replicated_job_has_a_policy(play: Play) -> None:
    """Story 4: workers may restart the JobSet without limit, the server may not."""
    jobs, server = play.all_jobs(), play.job("parameter-server")
    failures = [
        (play.job("workers", 1), "FailurePolicy_workersFail", (1, 0)),
        (server, "FailurePolicy_serverFails", (2, 1)),
        (play.job("workers", 0), "FailurePolicy_workersFail", (3, 1)),
    ]
    for attempt, (job, reason, restarts) in enumerate(failures, 1):
        await play.exit(job, 1)
        await play.until_attempt(attempt, *jobs)
        assert await play.restarts() == restarts
        assert await play.condition(RESTARTING) == ("True", reason)

    await play.exit(server, 1)
    await play.until_failed(MAX_RESTARTS)
    kinds = {c["type"] for c in (await play.read_all(Job))[server]["status"]["conditions"]}
    assert kinds >= {"Failed", "FailureTarget"}


async def first_matching_rule_decides(play: Play) -> None:
    """Each failure matches the rule that the header names; the optional Job restarts nothing."""
    workers, logger = play.job("workers"), play.job("logger")
    await play.exit(logger, 1)
    await play.until_event("FailJobFailurePolicyAction")
    await play.exit(workers, SIGTERM)
    await play.until_attempt(1, workers, logger)
    assert await play.restarts() == (1, 0)
    assert await play.condition(RESTARTING) == ("True", "FailurePolicy_maintenance")

    await play.exit(workers, 1)
    await play.until_attempt(2, workers, logger)
    assert await play.restarts() == (2, 1)

    await play.exit(workers, 42)
    await play.until_failed(BUG)
    assert await play.restarts() == (2, 1)


async def workers_restart_under_a_surviving_driver(play: Play) -> None:
    """Future work, story 1: the driver's pod survives, and its own failure restarts all Jobs."""
    driver, workers = play.job("driver"), [play.job("workers", 0), play.job("workers", 1)]
    before = await play.until_pods(driver, *workers)
    await play.exit(workers[1], 1)
    after = await _replaced(play, before, workers)
    assert same_pods(of_job(after, driver), of_job(before, driver))
    assert await play.restarts() == (0, 0)
    # Two Jobs were recreated after one failure, and one restart is counted.
    assert await play.own_restarts("workers") == ([1, 1], [0, 1])

    await play.exit(driver, 1)
    await play.until_attempt(1, driver, *workers)
    assert await play.restarts() == (1, 1)

    before = await play.until_pods(driver, *workers)
    await play.exit(workers[0], 1)
    await _replaced(play, before, workers)
    await play.exit(workers[0], 1)
    await play.until_failed(MAX_RESTARTS)


async def uncounted_restarts_of_workers(play: Play) -> None:
    """Restarts of the workers are not counted; the driver's failure ends the JobSet."""
    driver, workers = play.job("driver"), [play.job("workers", 0), play.job("workers", 1)]
    before = await play.until_pods(driver, *workers)
    for _ in range(2):
        await play.exit(workers[0], 1)
        after = await _replaced(play, before, workers)
        assert same_pods(of_job(after, driver), of_job(before, driver))
        before = after
    assert await play.own_restarts("workers") == ([2, 2], [])

    await play.exit(driver, 1)
    await play.until_failed(MAX_RESTARTS)
    assert await play.restarts() == (0, 0)


async def simulations_with_good_and_bad_parameters(play: Play) -> None:
    """Future work, story 2: exit code 3 is retried, 2 is not; the others run to their end."""
    names = play.all_jobs()
    before = await play.until_pods(*names)
    await play.exit(names[2], 2)
    await play.exit(names[1], 3)
    after = await _replaced(play, before, [names[1]], living=[names[0], names[1], names[3]])
    assert same_pods(of_job(after, names[0], names[3]), of_job(before, names[0], names[3]))
    assert await play.own_restarts("simulation") == ([0, 1, 0, 0], [0, 1, 0, 0])
    assert await play.restarts() == (0, 0)

    await play.succeed(names[0], names[1])
    assert await play.condition("Failed") is None
    await play.succeed(names[3])
    await play.until_failed("FailJobFailurePolicyAction")


async def nothing_is_retried(play: Play) -> None:
    """The first failure ends the JobSet, and the other Job is deleted."""
    failed, other = play.all_jobs()
    await play.until_pods(other)
    await play.exit(failed, 1)
    await play.until_failed("FailedJobs")
    await play.until_jobs(failed)
    assert await play.restarts() == (0, 0)


async def missed_deadline_is_fatal(play: Play) -> None:
    """A failure restarts the JobSet; missing the deadline, recognized by its message, fails it."""
    job = play.job("workers")
    other = await Play.open(play.client, play.path, without_deadline)
    await other.exit(job, 1)
    await other.until_attempt(1, job)
    await other.close()

    await play.until_failed(BUG)
    assert await play.restarts() == (0, 0)
    reason, message = await play.failure(job)
    assert reason == "DeadlineExceeded"
    assert message.endswith("longer than specified deadline")


def without_deadline(jobset: dict) -> None:
    """Remove the deadline, which a slow machine might miss before the Job fails."""
    del jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["activeDeadlineSeconds"]


async def hang_is_retried(play: Play) -> None:
    """Missing the deadline restarts the JobSet, but only once; a failure ends it immediately."""
    job = play.job("workers")
    other = await Play.open(play.client, play.path, without_deadline)
    await other.exit(job, 1)
    await other.until_failed(BUG)
    assert await other.restarts() == (0, 0)
    await other.close()

    # Both deadlines may have passed already, and the pods are deleted: only the end is checked.
    await play.until_failed(MAX_RESTARTS)
    assert await play.restarts() == (1, 1)
    assert (await play.failure(job))[0] == "DeadlineExceeded"
    (restart,) = (await play.stored())["status"]["restartHistory"]
    assert restart["cause"]["reason"] == "DeadlineExceeded"


async def some_indexes_may_fail(play: Play) -> None:
    """Two failed indexes restart the JobSet; with one the Job runs to its end first."""
    job = play.job("samples")
    await play.until_pods(job)
    pods = sorted(await play.pods(job))
    for name in pods[:2]:
        await play.exit_pod(name, 1)
    await play.until_attempt(1, job)
    assert await play.condition(RESTARTING) == ("True", "FailurePolicy_tooManyFailed")

    first, *others = sorted(await play.pods(job))
    await play.exit_pod(first, 1)
    for name in others:
        await play.exit_pod(name, 0)
    await play.until_failed(BUG)
    assert (await play.failure(job))[0] == "FailedIndexes"


async def all_old_jobs_are_deleted_first(play: Play) -> None:
    """No new Job is created while one old Job exists."""
    jobs = play.all_jobs()
    await play.until_pods(*jobs)
    held, second, _ = jobs
    await play.client.merge_patch(
        Job, play.namespace, held, {"metadata": {"finalizers": ["test.invalid/hold"]}}
    )
    await play.exit(second, 1)

    async def others_gone() -> None:
        left = await play.read_all(Job)
        assert set(left) == {held}
        assert "deletionTimestamp" in left[held]["metadata"]

    await play.until(others_gone)
    await play.only_jobs()
    await play.client.merge_patch(Job, play.namespace, held, {"metadata": {"finalizers": None}})
    await play.until_attempt(1, *jobs)
    assert await play.restarts() == (1, 1)
    await play.succeed(*jobs)
    await play.until_completed()


async def one_job_restarts(play: Play) -> None:
    """Only the failed Job is recreated, and each restart counts."""
    jobs = play.all_jobs()
    before = await play.until_pods(*jobs)
    for failed, counts in ((jobs[1], [0, 1, 0]), (jobs[0], [1, 1, 0])):
        await play.exit(failed, 1)
        after = await _replaced(play, before, [failed])
        rest = [job for job in jobs if job != failed]
        assert same_pods(of_job(after, *rest), of_job(before, *rest))
        assert await play.own_restarts("shard") == (counts, counts)
        before = after
    assert await play.restarts() == (0, 0)

    await play.exit(jobs[2], 1)
    await play.until_failed(MAX_RESTARTS)


async def uncounted_restart_of_one_job(play: Play) -> None:
    """Only the failed Job is recreated, and no restart counts."""
    jobs = play.all_jobs()
    before = await play.until_pods(*jobs)
    for count in (1, 2):
        await play.exit(jobs[1], 1)
        before = await _replaced(play, before, [jobs[1]])
        assert await play.own_restarts("shard") == ([0, count, 0], [])
    await play.succeed(*jobs)
    await play.until_completed()
    assert await play.restarts() == (0, 0)


async def first_successful_trial_wins(play: Play) -> None:
    """A failed Job is kept; the first complete Job completes the JobSet."""
    jobs = play.all_jobs()
    before = await play.until_pods(*jobs)
    await play.exit(jobs[0], 1)
    await play.until_event("FailJobFailurePolicyAction")
    assert same_pods(await play.pods(*jobs[1:]), of_job(before, *jobs[1:]))

    await play.succeed(jobs[1])
    await play.until_completed()
    await play.until_jobs(*jobs[:2])
    assert await play.restarts() == (0, 0)


async def job_is_recreated_by_hand(play: Play) -> None:
    """The annotation replaces one Job without counting it, and an event reports it."""
    marked, other = jobs = play.all_jobs()
    before = await play.until_pods(*jobs)
    mark = {"metadata": {"annotations": {keys.RESTART_ANNOTATION: "now"}}}
    await play.client.merge_patch(Job, play.namespace, marked, mark)
    after = await _replaced(play, before, [marked])
    assert same_pods(of_job(after, other), of_job(before, other))
    await play.until_event("RestartRequested")
    assert (await play.restarts(), await play.own_restarts("workers")) == ((0, 0), ([], []))


async def _replaced(
    play: Play, before: dict, jobs: list[str], *, living: list[str] | None = None
) -> dict:
    """Wait until these Jobs have new pods; return all pods of the living Jobs."""
    await play.until_pods(*jobs, other_than=of_job(before, *jobs))
    return await play.until_pods(*(living or play.all_jobs()))


PROMISES = {
    "failure-policy/blocking-recreate.yaml": all_old_jobs_are_deleted_first,
    "failure-policy/combined-rules.yaml": first_matching_rule_decides,
    "failure-policy/deadline.yaml": hang_is_retried,
    "failure-policy/fail-job.yaml": first_successful_trial_wins,
    "failure-policy/failed-indexes.yaml": some_indexes_may_fail,
    "failure-policy/host-maintenance.yaml": maintenance_costs_no_restart,
    "failure-policy/max-restarts.yaml": all_workers_restart_together,
    "failure-policy/message-patterns.yaml": missed_deadline_is_fatal,
    "failure-policy/no-policy.yaml": nothing_is_retried,
    "failure-policy/per-replicated-job.yaml": each_replicated_job_has_a_policy,
    "failure-policy/restart-by-hand.yaml": job_is_recreated_by_hand,
    "failure-policy/restart-job-uncounted.yaml": uncounted_restart_of_one_job,
    "failure-policy/restart-job.yaml": one_job_restarts,
    "failure-policy/restart-replicated-job-uncounted.yaml": uncounted_restarts_of_workers,
    "failure-policy/restart-replicated-job.yaml": workers_restart_under_a_surviving_driver,
    "failure-policy/simulations.yaml": simulations_with_good_and_bad_parameters,
    "failure-policy/time-limit.yaml": run_exceeds_its_deadline,
    "failure-policy/unrecoverable-exit-codes.yaml": bug_is_not_retried,
}
