"""Use of a JobSet's time over a day, as its status keeps it and ``kubectl jobset report`` shows."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from jobsetpy.api import keys
from jobsetpy.kubectl.bill import Restarts, bill, estimate, goodput
from jobsetpy.testing import VirtualClock, make_pod
from support.jobsets import replicated_job
from support.restarts.epoch_plans import policy

pytestmark = pytest.mark.looptime

MINUTE, HOUR = 1, 60
"""Seconds: the day is played sixty times as fast."""


class Day:
    """A day of one JobSet, from its creation on; a test plays user, queue, nodes and workers."""

    def __init__(self, rig):
        self.rig = rig
        self.began = VirtualClock().now()
        self.pods = []

    async def at(self, hours, minutes):
        """Sleep until a time of the day."""
        then = self.began + timedelta(seconds=hours * HOUR + minutes * MINUTE)
        await asyncio.sleep((then - VirtualClock().now()).total_seconds())

    def come(self, pods, epoch, first=None, last=None, cause=None):
        """Report an epoch and the run before as the supervisors of some pods do."""
        notes = {
            keys.EPOCH_ANNOTATION: str(epoch),
            keys.FIRST_PROGRESS_ANNOTATION: first,
            keys.PROGRESS_ANNOTATION: last,
            keys.RESTART_CAUSE_ANNOTATION: cause,
        }
        for pod in pods:
            self.rig.world.patch("pods", pod, {"metadata": {"annotations": notes}})

    def end_pods(self):
        """Delete all pods, and count them as the Job controller does."""
        for pod in self.pods:
            if self.rig.world.get("pods", pod) is not None:
                self.rig.world.delete("pods", pod)
        self.count(0)

    def new_pods(self):
        """Create the pods of all Jobs, which are ready immediately."""
        self.pods = self.rig.run_pods(2)
        self.count(2)

    def count(self, pods):
        """Set the number of ready pods of each Job."""
        for name in self.rig.jobs():
            self.rig.world.set_status("jobs", name, active=pods, ready=pods)

    async def play(self):
        """Play the day until its end."""
        rig = self.rig
        rig.create(
            replicated_job("w", 2, parallelism=2),
            failurePolicy=policy(max_restarts=10),
            suspend=True,
        )
        await self.at(1, 0)  # the queue admits it
        rig.change(suspend=False)
        await self.at(1, 10)  # the pods have come: run 1
        self.new_pods()
        self.come(self.pods, 1)
        await self.at(6, 10)  # a worker is killed at step 1000
        self.come(self.pods[:1], 2, "0 5.000", "1000", "exit-code=137")
        await self.at(6, 12)  # run 2, from the checkpoint at step 899 on
        self.come(self.pods[1:], 2, "0 5.000", "1000")
        await self.at(11, 12)  # a worker hangs
        self.come(self.pods[:1], 3, "900 10.000", "1900", "no-progress=60")
        await self.at(11, 13)  # run 3
        self.come(self.pods[1:], 3, "900 10.000", "1900")
        await self.at(16, 0)  # a Job fails: all Jobs are recreated
        rig.finish("test-js-w-1", "Failed", "BackoffLimitExceeded")
        await self.at(16, 20)  # run 4
        self.new_pods()
        self.come(self.pods, 4)
        await self.at(20, 0)  # a user suspends it
        rig.change(suspend=True)
        self.end_pods()
        await self.at(21, 0)
        rig.change(suspend=False)
        await self.at(21, 5)  # run 5
        self.new_pods()
        self.come(self.pods, 5)
        await self.at(24, 0)  # it is done
        for name in ("test-js-w-0", "test-js-w-1"):
            rig.finish(name)
        await rig.settle()

    def seat(self, name, index, **notes):
        """Create the pod of a seat; return its name."""
        pod = make_pod(name).of(self.rig.world.list("jobs")[0], index).phase("Running")
        pod.annotations({keys.IN_PLACE_SPARES_ANNOTATION: "0", **notes})
        self.rig.world.create("pods", pod.build())
        self.rig.world.set_status("pods", name, podIP=f"10.0.0.{index}")
        return name

    async def play_with_fewer(self):
        """Play a day with a minimum, on which a pod is missing for ten hours."""
        rig = self.rig
        pod = {"annotations": {keys.MIN_PODS_ANNOTATION: "3", keys.IN_PLACE_SPARES_ANNOTATION: "0"}}
        rig.create(
            replicated_job("w", 1, parallelism=4, pod_metadata=pod),
            failurePolicy=policy(max_restarts=10),
            annotations={
                keys.MIN_PODS_AFTER_ANNOTATION: "2",
                keys.GROW_AFTER_ANNOTATION: "0",
                keys.RESTART_BACKOFF_ANNOTATION: "0",
            },
        )
        await rig.settle(0.01)
        self.pods = [self.seat(f"pod-{index}", index) for index in range(4)]
        self.count(4)
        await self.at(0, 10)  # run 1
        self.come(self.pods, 1)
        await self.at(5, 10)  # a pod is deleted at step 1000
        lost = self.pods.pop(1)
        rig.world.delete("pods", lost)
        self.count(3)
        self.come(self.pods, 2, "0 5.000", "1000")
        await self.at(10, 12)  # run 2 with three pods, from 5:12 on, has done 400 steps again
        self.come(self.pods, 3, "600 60.000", "1400", "exit-code=137")
        await self.at(15, 12)  # run 3 with three pods; the fourth has come back
        ready = {keys.EPOCH_ANNOTATION: "4", keys.AGENT_STATE_ANNOTATION: "ready"}
        self.seat("back", 1, **ready)
        self.count(4)
        await self.at(15, 15)  # run 4 with all
        self.come(self.pods, 4, "1400 60.000", "2000")
        await self.at(24, 0)
        for name in rig.jobs():
            rig.finish(name)
        await rig.settle()


async def test_hours_with_three_of_four_pods_are_three_quarters_of_training(rig):
    """By hand: 23:45 of running, of which ten hours with three pods."""
    day = Day(rig)
    async with rig.manager():
        await day.play_with_fewer()
    found = bill(rig.jobset(), day.began + timedelta(hours=10))

    assert found is not None
    assert round(found.waiting) == 10 * MINUTE
    assert [each._replace(seconds=round(each.seconds)) for each in found.restarts] == [
        Restarts("InPlace", "PodDeleted", 1, 2 * MINUTE),
        Restarts("InPlace", "WorkerFailed", 1, 0),
        Restarts("InPlace", "GroupGrows", 1, 3 * MINUTE),
    ]
    assert round(found.running) == 23 * HOUR + 45 * MINUTE
    assert round(found.missing) == round(10 * HOUR / 4)
    # Runs 2 and 3 took an hour each to their first steps; in run 2, half of the steps were old.
    assert round(found.starting) == round(5 * MINUTE + 2 * HOUR * 0.75)
    assert round(found.repeating) == round(4 * HOUR * 0.75 / 2)
    assert round(found.training) == 23 * 60 + 45 - 150 - 95 - 90
    assert round(goodput([found]), 3) == round(1090 / 1440, 3)


async def test_report_of_a_recorded_day_equals_the_figures_computed_by_hand(rig):
    """All parts to the minute, which is a second here; after its end, nothing changes."""
    day = Day(rig)
    async with rig.manager():
        await day.play()
    found = bill(rig.jobset(), day.began + timedelta(hours=10))

    assert found is not None
    assert round(found.seconds) == 24 * HOUR
    assert round(found.queued) == 2 * HOUR
    assert round(found.waiting) == 15 * MINUTE
    assert round(found.running) == 21 * HOUR + 22 * MINUTE
    assert [each._replace(seconds=round(each.seconds)) for each in found.restarts] == [
        Restarts("InPlace", "WorkerFailed", 1, 2 * MINUTE),
        Restarts("InPlace", "WorkerHung", 1, 1 * MINUTE),
        Restarts("Recreate", "BackoffLimitExceeded", 1, 20 * MINUTE),
    ]
    # Run 1 took 5 minutes to its first step, run 2 ten; of its 1000 steps, 100 were done before.
    assert round(found.starting) == 15 * MINUTE
    assert round(found.repeating) == round((5 * HOUR - 10 * MINUTE) * 0.1)
    assert found.repeated_steps == 101
    assert round(found.reported) == 10 * HOUR
    assert round(goodput([found]), 4) == round((21 * 60 + 22 - 15 - 29) / (22 * 60), 4)
    guess = estimate(found, ())
    assert (guess.failures, round(guess.actual), round(guess.each)) == (2, 3 * MINUTE, 20 * MINUTE)
