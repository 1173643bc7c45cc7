"""What supervisors report on a real node: failures, hangs; and restarts on request and on notice."""

import functools
import json
import re
import signal

import pytest

from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import HttpRequest
from support.scenario import kill_worker, run_gang, supervised_jobset

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = """n=0; trap 'exit 143' TERM
while :; do n=$((n+1)); echo $n >"$JOBSET_PROGRESS_FILE"; sleep 0.2; done"""
HANG_S = 5
PODS = 2


async def test_causes_hangs_requests_and_notices(node_cluster, node_client):
    """Each is told for what it is, and only failures are counted."""
    hang = {"HANG_SECONDS": str(HANG_S), "HANG_FIRST_SECONDS": str(HANG_S)}
    jobset = supervised_jobset("progress", PODS, command=("sh", "-c", SCRIPT), environ=hang)
    end = functools.partial(kill_worker, script=SCRIPT, supervised=True)
    async with run_gang(node_client, jobset, PODS) as timeline:

        async def restarted(epoch):
            await timeline.wait(lambda: epoch in timeline.synced, 120, f"epoch {epoch}")
            status = (await node_client.get(JobSet, "default", "progress")).status
            record, counts = status.restart_history[-1], status.in_place_restart
            assert (record.number, record.outcome) == (epoch, "Completed")
            return record.cause, record.counted, counts

        async def pod(nth):
            return await node_client.get(Pod, "default", sorted(timeline.pods)[nth])

        failed = await pod(0)
        await end(failed)
        cause, counted, counts = await restarted(2)
        assert (cause.reason, cause.pod) == (keys.WORKER_FAILED_REASON, failed.metadata.name)
        assert (cause.exit_code, counted, counts.restarts) == (137, True, 1)
        assert counts.highest_step is not None

        await end(await pod(1), number=signal.SIGSTOP)
        cause, counted, counts = await restarted(3)
        assert (cause.reason, counted, counts.restarts) == (keys.WORKER_HUNG_REASON, True, 2)
        assert re.match(rf"no progress for {HANG_S} s( at step \d+)?$", cause.message)

        asked = {"metadata": {"annotations": {keys.RESTART_IN_PLACE_ANNOTATION: "now"}}}
        await node_client.merge_patch(JobSet, "default", "progress", asked)
        cause, counted, counts = await restarted(4)
        assert (cause.reason, counted, counts.restarts) == ("RestartRequested", False, 2)
        assert counts.served_request == "now"

        leaving = await pod(0)
        await evict(node_client, leaving)
        cause, counted, counts = await restarted(5)
        assert (cause.reason, cause.pod) == (keys.POD_LEAVING_REASON, leaving.metadata.name)
        assert (counted, counts.restarts) == (False, 2)
        assert leaving.metadata.name not in timeline.pods


async def evict(client, pod):
    """What ``kubectl drain`` does."""
    meta = pod.metadata
    path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}/eviction"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
    }
    await client.raw(HttpRequest(method="POST", path=path, body=json.dumps(body).encode()))
