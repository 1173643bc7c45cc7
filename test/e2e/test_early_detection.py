"""Early detection on a real kubelet: a worker's end is seen before its pod has restarted."""

import functools
import signal

import pytest

from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from support.restarts.scenario import (
    EventText,
    gang_jobset,
    kill_worker,
    pod_log_folders,
    restart_once,
    run_gang,
)

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = "trap 'exit 143' TERM; trap 'exit 7' HUP; echo worker started; sleep 1000000 & wait $!"
ROUNDS = 2


async def test_restart_begins_before_the_failed_pods_agent_reports(node_cluster, node_client):
    """The epoch is deprecated before any agent is back, and each container restarts once.

    The event has the worker's own exit code, which the kubelet overwrites a moment later.
    """
    jobset = gang_jobset("early", 4, command=SCRIPT)
    fail = functools.partial(kill_worker, script=SCRIPT, number=signal.SIGHUP)
    ahead, took = [], []
    async with run_gang(node_client, jobset, 4, pod_log_folders(node_cluster)) as timeline:
        for _ in range(ROUNDS):
            restart = await restart_once(timeline, 4, fail)
            at = [phase.at for phase in restart.phases]
            reported, deprecated = at[:2]
            ahead.append(round(reported - deprecated, 2))
            took.append(round(restart.seconds, 2))
        pods = (await node_client.list_page(Pod, "default")).items
        events = (await node_client.list_page(EventText, "default")).items

        assert max(timeline.synced) == ROUNDS + 1
        # A kubelet may merge two statuses; then the pod's own agent reports the failure, later.
        seen = [seconds > 0.2 for seconds in ahead]
        assert sum(seen) >= ROUNDS - 1, (ahead, took)
        counts = {
            status.restart_count
            for pod in pods
            for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)
        }
        assert counts == {ROUNDS}
        notes = [e.note for e in events if e.reason == keys.IN_PLACE_RESTART_STARTED_REASON]
        assert any("container 'worker' exited with 7 (Error)" in note for note in notes), notes
