"""The sidecar as a process, over TLS, against the fake API server and its faults."""

from __future__ import annotations

from jobsetpy.agent.protocol.wire_types import JobSet
from support.agents.agent_process import JOBSETS, Pod

EXIT_CODE = 42
SIDECAR = {
    "RESTART_POD_IN_PLACE_EXIT_CODE": str(EXIT_CODE),
    "BARRIER_BIND_ADDRESS": "127.0.0.1",
    "BARRIER_PORT": "0",
}


def test_agent_watches_the_resource_that_the_manager_serves() -> None:
    """Its own model of a JobSet has the same group, version, kind and plural."""
    ours = JobSet.RESOURCE

    same = (JOBSETS.group, JOBSETS.version, JOBSETS.kind, JOBSETS.plural)
    assert (ours.group, ours.version, ours.kind, ours.plural) == same


async def test_sidecar_joins_one_epoch_higher_when_it_runs_again(pod: Pod) -> None:
    """It joins, its barrier lifts, and it ends when its epoch is deprecated, with a request each."""
    async with pod.run(**SIDECAR) as first:
        await pod.at(1)
        assert await first.probe() == 503
        pod.status(syncedEpoch=1)
        await first.logged("barrier lifted")
        assert await first.probe() == 200
        pod.status(deprecatedEpoch=1)
        assert await first.exit_code() == EXIT_CODE
    async with pod.run(**SIDECAR) as second:
        await pod.at(2)
        assert await second.probe() == 503
        pod.status(syncedEpoch=2)
        await second.logged("barrier lifted")

    assert pod.server.requests.count("watch", "jobsets") == 2
    assert pod.server.requests.count("patch", "pods") == 2
    assert len(pod.server.requests) == 4


async def test_sidecar_goes_through_its_epoch_when_the_api_server_fails(pod: Pod) -> None:
    """Refusals, lost answers and cut streams delay it and change nothing else."""
    pod.server.faults.status(503, verb="watch", count=2)
    pod.server.faults.status(429, retry_after=1, verb="patch", count=1)
    pod.server.faults.lose_answer(verb="patch")
    async with pod.run(**SIDECAR) as agent:
        await pod.at(1)
        pod.server.faults.cut(verb="watch", reset=True)
        pod.status(syncedEpoch=1)
        await agent.logged("barrier lifted")
        pod.server.expire()
        pod.server.faults.fail_watches(410)
        pod.status(deprecatedEpoch=1)

        assert await agent.exit_code() == EXIT_CODE


async def test_sidecar_waits_when_there_is_no_api_server(pod: Pod) -> None:
    """It starts before the API server does, and survives a restart of it."""
    await pod.server.stop()
    async with pod.run(**SIDECAR) as agent:
        await agent.logged("cannot watch the JobSet")
        await pod.server.start()
        await pod.at(1)
        await pod.server.stop()
        pod.status(syncedEpoch=1)
        await pod.server.start()
        await agent.logged("barrier lifted")

        assert await agent.probe() == 200
