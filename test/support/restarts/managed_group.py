"""A group that restarts in place, under a whole manager on a cluster in memory."""

from __future__ import annotations

from support.jobsets import replicated_job
from support.restarts.epoch_plans import policy


async def come(rig, pods, epoch):
    """Report an epoch for each of these pods, and let the manager react."""
    for pod in pods:
        rig.report(pod, epoch)
    await rig.settle()


async def started(rig, *items, jobs=2, pods=2, **spec):
    """Create a JobSet whose pods all come to epoch 1, and return their names.

    Args:
        items: its ReplicatedJobs; one with the given numbers of Jobs and of their pods if none.
        spec: fields of its spec, in place of a failure policy that restarts in place.
    """
    items = items or [replicated_job("w", jobs, parallelism=pods)]
    rig.create(*items, **{"failurePolicy": policy(), **spec})
    await rig.settle()
    names = rig.run_pods(pods)
    await come(rig, names, 1)
    assert rig.epochs() == (1, 0)
    rig.world.requests.clear()
    return names


def epoch_writes(rig):
    """Return the epochs of each status patch that has any, oldest first."""
    written = [{k: v for k, v in body.items() if "Epoch" in k} for body in rig.status_writes()]
    return [body for body in written if body]
