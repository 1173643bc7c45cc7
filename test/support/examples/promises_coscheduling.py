"""Outcomes of the examples of coscheduling; no scheduler of this cluster finds a node."""

from jobsetpy.api import keys
from support.examples.examples_kit import JOB_NAME, Play

NAME, MIN = keys.POD_GROUP_NAME, keys.POD_GROUP_MIN_AVAILABLE


async def gangs(play: Play, *jobs: str) -> dict[str, tuple[str | None, str | None]]:
    """Return gang and minimum of all pods of each Job, by the Job's name."""
    found: dict[str, tuple[str | None, str | None]] = {}
    for pod in (await play.until_pods(*jobs)).values():
        labels = pod["metadata"]["labels"]
        mine = labels.get(NAME), labels.get(MIN)
        assert found.setdefault(labels[JOB_NAME], mine) == mine
    return found


async def waits(play: Play, *words: str) -> None:
    """Wait until the message of the condition has these words."""

    async def check() -> None:
        conditions = (await play.stored()).get("status", {}).get("conditions", ())
        texts = [
            each["message"]
            for each in conditions
            if (each["type"], each["status"]) == (keys.COSCHEDULING_IN_PROGRESS_CONDITION, "True")
        ]
        assert texts
        assert all(word in texts[0] for word in words)

    await play.until(check)


async def all_pods_are_one_gang(play: Play) -> None:
    """It has pods of both ReplicatedJobs; a condition reports its state."""
    jobs = play.all_jobs()
    ((name, minimum),) = set((await gangs(play, *jobs)).values())
    assert name
    assert name.startswith("gang-")
    assert minimum == "5"
    await waits(play, "5 of 5 members")
    await play.succeed(*jobs)
    await play.until_completed()


async def field_names_three_gangs(play: Play) -> None:
    """Without the API server's PodGroups, pods have the labels of the same gangs."""
    jobs = play.all_jobs()
    found = await gangs(play, *jobs)
    sizes = dict(found.values())
    assert sorted(sizes.values()) == ["2", "2", "3"]
    server, *_ = jobs
    assert found[server] == found[play.job("clients", 1)]
    await waits(play, "0 of 3 groups are bound")
    await play.succeed(*jobs)
    await play.until_completed()


async def native_gang_is_one_elsewhere(play: Play) -> None:
    """Four pods are one gang, each with a claim of its own."""
    (job,) = play.all_jobs()
    assert [minimum for _, minimum in (await gangs(play, job)).values()] == ["4"]
    await waits(play, "4 of 4 members")
    for pod in (await play.pods(job)).values():
        assert [each["name"] for each in pod["spec"]["resourceClaims"]] == ["fabric"]
    await play.succeed(job)
    await play.until_completed()


async def each_job_needs_three(play: Play) -> None:
    """Two gangs, and pods without one; existing pods get a changed minimum."""
    first, second, sidekick = (play.job("workers"), play.job("workers", 1), play.job("sidekick"))
    found = await gangs(play, first, second, sidekick)
    assert found[sidekick] == (None, None)
    assert found[first][0] != found[second][0]
    assert {minimum for name, minimum in found.values() if name} == {"3"}
    (pod, *_) = (await play.pods(first)).values()
    assert pod["metadata"]["annotations"][keys.COSCHEDULING_TIMEOUT_ANNOTATION] == "30"
    await waits(play, "0 of 2 groups are bound", "4 of 3 members")

    await play.change({"metadata": {"annotations": {keys.COSCHEDULING_MIN_ANNOTATION: "4"}}})

    async def followed() -> None:
        minima = {minimum for _, minimum in (await gangs(play, first, second)).values()}
        assert minima == {"4"}

    await play.until(followed)
    await play.succeed(first, second)
    await play.until_completed()


PROMISES = {
    "coscheduling/gang.yaml": all_pods_are_one_gang,
    "coscheduling/native.yaml": native_gang_is_one_elsewhere,
    "coscheduling/scheduling-field.yaml": field_names_three_gangs,
    "coscheduling/some-of-each-job.yaml": each_job_needs_three,
}
