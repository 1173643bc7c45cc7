"""Spares in a whole manager: a lost pod costs a restart, and no wait for its replacement."""

from __future__ import annotations

from itertools import pairwise

import pytest

from jobsetpy.api import keys
from jobsetpy.api.agent_reports import PREPARED
from jobsetpy.testing import make_pod
from support.jobsets import replicated_job
from support.restarts.epoch_plans import policy
from support.restarts.managed_group import come

pytestmark = pytest.mark.looptime

STATE = keys.AGENT_STATE_ANNOTATION
SPARE_JOB = {"jobs": 3, "spares": 0, "spare_jobs": 1}
"""Group of two Jobs with two seats each, and a spare Job."""
FIRST_JOB = ["test-js-w-0-0", "test-js-w-0-1"]


class Group:
    """One Job of two seats and a spare; a test in the roles of agents and the Job controller."""

    def __init__(self, rig):
        self.rig = rig
        self.pods = {}

    async def start(
        self, *, seats=2, spares=1, jobs=1, spare_jobs=0, absent=None, early=False, least=0,
        least_jobs=0, **settings
    ):  # fmt: skip
        """Create the JobSet, and bring all pods but an absent one to epoch 1.

        Args:
            seats: seats of each Job that has some.
            spares: spare pods of each Job.
            jobs: Jobs, with spare Jobs.
            spare_jobs: those without seats.
            absent: index of a pod that does not come.
            early: whether the group starts after some seconds without it.
            least: fewest pods with which a Job continues after a second; it grows immediately.
            least_jobs: the same for Jobs.
            settings: fields of the failure policy.
        """
        notes = {keys.IN_PLACE_SPARES_ANNOTATION: str(spares)}
        if spare_jobs:
            notes[keys.IN_PLACE_SPARE_JOBS_ANNOTATION] = str(spare_jobs)
        pod = {"annotations": notes}
        template = replicated_job("w", jobs, parallelism=seats + spares, pod_metadata=pod)
        start = {keys.START_WITHOUT_SPARES_ANNOTATION: "true"} if early else {}
        if least or least_jobs:
            name = keys.MIN_PODS_ANNOTATION if least else keys.MIN_REPLICAS_ANNOTATION
            notes[name] = str(least or least_jobs)
            start = {keys.MIN_PODS_AFTER_ANNOTATION: "1", keys.GROW_AFTER_ANNOTATION: "0"}
            start[keys.RESTART_BACKOFF_ANNOTATION] = "0"
        self.rig.create(template, failurePolicy=policy(**settings), annotations=start)
        await self.rig.settle()
        for job in self.rig.world.list("jobs"):
            for index in range(seats + spares):
                if index != absent:
                    self.create(index, job=job)
        for name in list(self.pods):
            self.rig.report(name, 1)
        if absent is not None:
            await self.rig.settle(4 if early else 59)
            assert self.rig.epochs() == (0, 0)
        await self.rig.settle()
        assert self.rig.epochs() == (1, 0)
        for name, index in self.pods.items():
            spare = index >= seats or int(name.split("-")[3]) >= jobs - spare_jobs
            if spare and absent is None:
                self.park(name, 2)
        await self.rig.settle()
        self.rig.world.requests.clear()

    def create(self, index, *, name="", job=None):
        """Create a pod as the Job controller does, with the Job's annotation."""
        job = job or self.rig.world.list("jobs")[0]
        name = name or f"{job['metadata']['name']}-{index}"
        body = make_pod(name).of(job, index).phase("Running").build()
        notes = body["metadata"].setdefault("annotations", {})
        given = job["metadata"]["annotations"]
        for kind in (keys.IN_PLACE_SPARES_ANNOTATION, keys.IN_PLACE_SPARE_JOBS_ANNOTATION):
            if kind in given:
                notes[kind] = given[kind]
        self.rig.world.create("pods", body)
        self.rig.world.set_status("pods", name, podIP=f"10.0.0.{index}")
        self.pods[name] = index
        return name

    def annotate(self, name, notes):
        """Change annotations of a pod."""
        self.rig.world.patch("pods", name, {"metadata": {"annotations": notes}})

    def park(self, name, epoch, state="ready"):
        """Let the agent of a pod without a seat come to the next epoch."""
        self.annotate(name, {keys.EPOCH_ANNOTATION: str(epoch), STATE: state})

    def prepare(self, names):
        """Let agents of running pods report that their standby processes are prepared."""
        for name in names:
            self.annotate(name, {STATE: PREPARED})

    async def lose(self, *names):
        """Delete pods, and let the manager react."""
        for name in names:
            self.rig.world.delete("pods", name)
        await self.rig.settle(0.1)

    async def come(self, names, epoch, settle_s):
        """Report an epoch for pods, and let the manager react."""
        for name in names:
            self.rig.report(name, epoch)
        await self.rig.settle(settle_s)

    def entries(self):
        """Return the entries of the assignment of seats."""
        return self.rig.status()["inPlaceRestart"].get("takenSeats", [])

    def seats(self):
        """Return seat, pod and address of each entry."""
        return [(one["seat"], one["pod"], one["address"]) for one in self.entries()]

    def holders(self):
        """Return seat and pod of each entry."""
        return [(one["seat"], one["pod"]) for one in self.entries()]

    def jobs(self):
        """Return Job and holder of each entry of the assignment of Jobs."""
        record = self.rig.status()["inPlaceRestart"]
        return [(one["job"], one["holder"]) for one in record.get("takenJobs", ())]

    def ready(self):
        """Return the number of ready spares in the status."""
        return self.rig.status()["inPlaceRestart"].get("readySpares")


@pytest.fixture
async def group(rig):
    """An empty cluster for a group with spares."""
    return Group(rig)


async def test_lost_pod_is_replaced_by_the_spare_in_the_write_that_lifts_the_barrier(rig, group):
    """A restart costs two writes, as usual; the assignment is in the second one."""
    async with rig.manager():
        await group.start()
        await group.lose("test-js-w-0-1")
        assert rig.epochs() == (1, 1)
        await group.come(["test-js-w-0-0"], 2, 0.1)

        assert rig.epochs() == (2, 1)
        assert group.seats() == [(1, "test-js-w-0-2", "10.0.0.2")]
        assert group.ready() == 0
        lifts = [body for body in rig.status_writes() if "syncedEpoch" in body]
        assert [len(one["inPlaceRestart"]["takenSeats"]) for one in lifts] == [1]
        assert rig.status()["restartHistory"][-1]["seatsTaken"] == 1
        (event,) = rig.events(keys.SEAT_TAKEN_REASON)
        assert event[1] == "pod 'test-js-w-0-2' takes seat 1 of job 'test-js-w-0'"


async def test_returning_pod_is_parked_and_restarts_none(rig, group):
    """The replacement of a lost pod is the next spare."""
    async with rig.manager():
        await group.start()
        await group.lose("test-js-w-0-1")
        await come(rig, ["test-js-w-0-0"], 2)
        again = group.create(1, name="again")
        group.park(again, 3)
        await rig.settle()

        assert rig.epochs() == (2, 1)
        assert group.ready() == 1

        # The spare that has the seat is lost, too: the returned pod takes its seat back.
        await group.lose("test-js-w-0-2")
        await come(rig, ["test-js-w-0-0"], 3)  # after the back-off of a second restart in a row
        assert rig.epochs() == (3, 2)
        assert group.seats() == []


@pytest.mark.parametrize("how", ["deleted", "failed", "crashed"])
async def test_failed_spare_restarts_none(rig, group, how):
    """No epoch is opened and nothing charged; the status says that no spare is ready."""
    async with rig.manager():
        await group.start(maxRestarts=0)
        spare = "test-js-w-0-2"
        if how == "deleted":
            rig.world.delete("pods", spare)
        elif how == "failed":
            rig.world.set_status("pods", spare, phase="Failed")
        else:
            state = {"terminated": {"exitCode": 1}}
            for count in (1, 2, 3):
                one = {"name": "worker", "restartCount": count, "lastState": state}
                rig.world.set_status("pods", spare, containerStatuses=[one])
                await rig.settle(1)
        await rig.settle(120)

        assert rig.epochs() == (1, 0)
        assert rig.condition("Failed") is None
        assert group.ready() == (1 if how == "crashed" else 0)


async def test_unfit_spare_is_not_ready(rig, group):
    """Nothing restarts, and the next lost pod waits for its replacement."""
    async with rig.manager():
        await group.start()
        group.park("test-js-w-0-2", 2, state="unfit: exit code 3: row remap failed")
        await rig.settle()
        assert (rig.epochs(), group.ready()) == ((1, 0), 0)
        await group.lose("test-js-w-0-1")
        await group.come(["test-js-w-0-0"], 2, 10)

        assert rig.epochs() == (1, 1)
        await come(rig, [group.create(1, name="again")], 2)
        assert (rig.epochs(), group.seats()) == ((2, 1), [])


async def test_unfit_holder_is_replaced_by_a_spare_before_its_pod_has_ended(rig, group):
    """Its agent reports it during the restart, and the barrier lifts without the last call."""
    async with rig.manager():
        await group.start()
        await group.come(["test-js-w-0-0"], 2, 0.1)
        group.park("test-js-w-0-1", 1, state="unfit: it did not end")
        await rig.settle(0.1)

        assert rig.epochs() == (2, 1)
        assert group.holders() == [(1, "test-js-w-0-2")]


def spread(group, *nodes):
    """Put the pods on nodes, by their indexes."""
    for name, index in group.pods.items():
        group.rig.world.patch("pods", name, {"spec": {"nodeName": nodes[index]}})


@pytest.mark.parametrize("late", [(2,), (3,), (2, 3), (3, 2)])
async def test_healed_pod_does_not_get_its_seat_back_by_late_patches(rig, group, late):
    """Patches that were delayed for long have no effect: the assignment names UIDs."""
    async with rig.manager():
        await group.start()
        await group.come(["test-js-w-0-0"], 2, 0.5)
        assert rig.epochs() == (1, 1)  # the last call lasts a second
        await rig.settle(1)
        assert group.seats() == [(1, "test-js-w-0-2", "10.0.0.2")]
        for epoch in late:
            await group.come(["test-js-w-0-1"], epoch, 60)

        assert rig.epochs() == (2, 1)
        assert group.seats() == [(1, "test-js-w-0-2", "10.0.0.2")]
        # Nor does it take its seat back when the group restarts for another reason.
        await group.come(["test-js-w-0-0", "test-js-w-0-2"], 3, 60)
        assert group.seats() == [(1, "test-js-w-0-2", "10.0.0.2")]


async def test_holder_keeps_its_seat_while_it_saves_its_work(rig, group):
    """As long as its grace period lasts."""
    async with rig.manager():
        await group.start()
        group.annotate("test-js-w-0-1", {STATE: "saving=20"})
        await group.come(["test-js-w-0-0"], 2, 15)
        assert rig.epochs() == (1, 1)
        group.park("test-js-w-0-1", 2, None)
        await rig.settle(0.1)

        assert rig.epochs() == (2, 1)
        assert group.seats() == []


# ---- pods that send no heartbeats ----------------------------------------------------------------


def unheard(group, text, *indexes):
    """Let the agents of pods report on their neighbours."""
    for index in indexes:
        group.annotate(f"test-js-w-0-{index}", {keys.UNHEARD_ANNOTATION: text})


async def test_silent_pod_loses_its_seat_after_the_last_call_when_workers_stall(rig, group):
    """In that second its own agent kills the worker; the history names pod and node."""
    async with rig.manager():
        await group.start()
        spread(group, "a", "b", "c")
        unheard(group, "1 stalled w-0-1", 0)
        await rig.settle(0.1)
        assert rig.epochs() == (1, 0)
        unheard(group, "1 stalled w-0-1", 2)
        await rig.settle(0.1)
        assert rig.epochs() == (1, 1)
        assert rig.condition(keys.RESTARTING_IN_PLACE_CONDITION) == ("True", "PodSilent")
        await group.come(["test-js-w-0-0"], 2, 0.7)
        assert rig.epochs() == (1, 1)
        await rig.settle(0.3)

        assert rig.epochs() == (2, 1)
        assert group.holders() == [(1, "test-js-w-0-2")]
        cause = rig.status()["restartHistory"][-1]["cause"]
        assert (cause["reason"], cause["pod"], cause["node"]) == ("PodSilent", "test-js-w-0-1", "b")
        # The reports of this epoch stay until the next one, and have no effect then.
        await rig.settle(60)
        assert rig.epochs() == (2, 1)
        # The silent pod returns, and is parked.
        group.park("test-js-w-0-1", 3)
        await rig.settle(60)
        assert rig.epochs() == (2, 1)


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ("1 stalled w-0-1", None, "nothing is done, since agents of other nodes do"),
        ("1 moving w-0-1", "1 stalled w-0-1", "since workers make progress"),
        ("1 unknown w-0-1", "1 unknown w-0-1", "no worker reports enough progress"),
        ("1 stalled w-0-2", "1 stalled w-0-2", "it has no seat"),
    ],
)
async def test_silence_alone_leads_to_an_event_and_nothing_else(rig, group, one, other, why):
    """Once, however often the pods change."""
    async with rig.manager():
        await group.start()
        spread(group, "a", "b", "c")
        for index, text in ((0, one), (1 if "w-0-2" in one else 2, other)):
            if text is not None:
                unheard(group, text, index)
                await rig.settle(0.1)
        await rig.settle(60)
        rig.touch()
        await rig.settle(60)

        assert rig.epochs() == (1, 0)
        times = [count for _, message, count in rig.events() if why in message]
        assert times == [1]


async def test_silent_pod_is_awaited_when_there_is_no_spare(rig, group):
    """The spare is on the silent node as well: a restart would only cost time."""
    async with rig.manager():
        await group.start(seats=3)
        spread(group, "a", "b", "c", "b")
        unheard(group, "1 stalled w-0-1,w-0-3", 0, 2)
        await rig.settle(60)

        assert rig.epochs() == (1, 0)
        messages = [message for _, message, _ in rig.events(keys.POD_SILENT_REASON)]
        assert any("no spare can take its seat" in each for each in messages)


async def test_silent_pod_is_not_awaited_although_it_was_saving_its_work(rig, group):
    """Whatever began the restart: a worker that notices the loss itself is the second sign, too."""
    async with rig.manager():
        await group.start()
        spread(group, "a", "b", "c")
        group.annotate("test-js-w-0-1", {STATE: "saving=20"})
        unheard(group, "1 unknown w-0-1", 0, 2)
        await rig.settle(0.1)
        assert rig.epochs() == (1, 0)
        await group.come(["test-js-w-0-0"], 2, 1.1)

        assert rig.epochs() == (2, 1)
        assert group.holders() == [(1, "test-js-w-0-2")]


async def test_silent_spare_takes_no_seat(rig, group):
    """The other one does, although it is not prepared."""
    async with rig.manager():
        await group.start(spares=2)
        spread(group, "a", "b", "c", "d")
        group.park("test-js-w-0-3", 2, "parked")
        unheard(group, "1 unknown w-0-2", 1, 3)
        await group.lose("test-js-w-0-1")
        unheard(group, "1 unknown w-0-2", 0)
        await group.come(["test-js-w-0-0"], 2, 0.1)

        assert group.holders() == [(1, "test-js-w-0-3")]


async def test_new_manager_uses_the_existing_reports(rig, group):
    """They are read from the pods, in any order of events."""
    async with rig.manager():
        await group.start()
        spread(group, "a", "b", "c")
    unheard(group, "1 stalled w-0-1", 0, 2)
    async with rig.manager():
        await rig.settle(0.1)

        assert rig.epochs() == (1, 1)


async def test_blocked_heartbeats_are_reported_once(rig, group):
    """By an event, and nothing restarts."""
    async with rig.manager():
        await group.start()
        spread(group, "a", "b", "c")
        unheard(group, "1 blocked", 0, 1, 2)
        await rig.settle(60)
        rig.touch()
        await rig.settle(60)

        assert rig.epochs() == (1, 0)
        (event,) = rig.events(keys.HEARTBEATS_BLOCKED_REASON)
        assert "UDP, port 29400" in event[1]


async def test_report_about_another_group_is_ignored(rig, group):
    """Names are looked up among the JobSet's own pods; any client can write annotations."""
    async with rig.manager():
        await group.start()
        spread(group, "a", "b", "c")
        unheard(group, "1 stalled other-0-1,x", 0)
        unheard(group, "1 stalled w-9-1", 2)
        await rig.settle(60)

        assert rig.epochs() == (1, 0)
        assert rig.events(keys.POD_SILENT_REASON) == []


@pytest.mark.parametrize("early", [False, True], ids=["a minute", "five seconds"])
async def test_group_starts_without_a_pod_that_finds_no_node(rig, group, early):
    """Some time after the first pod has come a spare works in its place."""
    async with rig.manager():
        await group.start(absent=1, early=early)
        await rig.settle(120)

        assert group.holders() == [(1, "test-js-w-0-2")]
        assert rig.epochs() == (1, 0)

        # It is created, still finds no node, and is not missing.
        rig.world.set_status("pods", group.create(1), phase="Pending")
        await rig.settle(120)
        assert rig.epochs() == (1, 0)


async def test_new_manager_continues_the_same_restart(rig, group):
    """The assignment follows from the status and the pods alone."""
    async with rig.manager():
        await group.start()
        await group.lose("test-js-w-0-1")
        await group.come(["test-js-w-0-0"], 2, 0.1)
    async with rig.manager():
        await rig.settle()
        assert rig.epochs() == (2, 1)
        again = group.create(1, name="again")
        group.park(again, 3)
        await group.lose("test-js-w-0-0")
    async with rig.manager():
        await rig.settle(0.1)
        await come(rig, ["test-js-w-0-2"], 3)

        assert rig.epochs()[0] == 3
        assert group.holders() == [(0, "again"), (1, "test-js-w-0-2")]


async def test_group_continues_without_the_seats_of_a_job_that_stays_failed(rig, group):
    """By a rule of the failure policy; the other Job has its spare, and restarts with it."""
    rules = [{"name": "stay", "action": "FailJob"}]
    async with rig.manager():
        await group.start(jobs=2, rules=rules)
        failed = "test-js-w-1"
        for name in [each for each in group.pods if each.startswith(failed)]:
            rig.world.delete("pods", name)
        rig.finish(failed, "Failed", "BackoffLimitExceeded")
        await rig.settle(5)
        await group.lose("test-js-w-0-1")
        epoch = max(rig.epochs()) + 1
        await come(rig, ["test-js-w-0-0", "test-js-w-0-2"], epoch)

        assert rig.epochs()[0] == epoch
        assert group.holders() == [(1, "test-js-w-0-2")]
        assert rig.condition("Failed") is None


# ---- whole Jobs as spares ------------------------------------------------------------------------


def job_of(rig, index):
    """Return a Job of the JobSet."""
    return rig.world.get("jobs", f"test-js-w-{index}")


async def test_spare_job_takes_all_seats_of_a_job_that_loses_a_pod(rig, group):
    """In the write that lifts the barrier; the rest of that Job is parked, and returns as a spare."""
    async with rig.manager():
        await group.start(**SPARE_JOB)
        assert group.ready() == 2
        await group.lose("test-js-w-1-0")
        group.park("test-js-w-1-1", 2, None)  # its agent has a seat until the barrier lifts
        await group.come(FIRST_JOB, 2, 0.1)

        assert rig.epochs() == (2, 1)
        assert group.jobs() == [("test-js-w-1", "test-js-w-2")]
        assert group.seats() == []
        assert group.ready() == 0
        assert rig.status()["restartHistory"][-1]["seatsTaken"] == 2
        (event,) = rig.events(keys.SEAT_TAKEN_REASON)
        assert event[1] == "job 'test-js-w-2' takes all seats of job 'test-js-w-1'"

        group.park("test-js-w-1-1", 3)
        group.park(group.create(0, name="test-js-w-1-0-again", job=job_of(rig, 1)), 3)
        await rig.settle()
        assert rig.epochs() == (2, 1)
        assert group.ready() == 2


async def test_lost_spare_job_restarts_none(rig, group):
    """Its pods have no seats: no epoch is opened, and nothing is charged."""
    async with rig.manager():
        await group.start(**SPARE_JOB, maxRestarts=0)
        await group.lose("test-js-w-2-0", "test-js-w-2-1")
        await rig.settle(120)

        assert rig.epochs() == (1, 0)
        assert rig.condition("Failed") is None
        assert group.ready() == 0


async def test_jobset_is_complete_when_the_jobs_with_seats_are(rig, group):
    """Also if a spare Job has taken over; the remaining Jobs are deleted."""
    async with rig.manager():
        await group.start(**SPARE_JOB)
        await group.lose("test-js-w-1-0")
        group.park("test-js-w-1-1", 2, None)
        await come(rig, FIRST_JOB, 2)
        assert group.jobs() == [("test-js-w-1", "test-js-w-2")]
        rig.finish("test-js-w-0")
        await rig.settle()
        assert rig.condition("Completed") is None
        rig.finish("test-js-w-2")
        await rig.settle()

        assert rig.condition("Completed")[0] == "True"
        assert sorted(rig.jobs()) == ["test-js-w-0", "test-js-w-2"]


async def test_success_observed_late_in_a_job_without_seats_does_not_count(rig, group):
    """The work is done again elsewhere; otherwise the group would wait forever for one pod more."""
    async with rig.manager():
        await group.start(**SPARE_JOB)
        await group.lose("test-js-w-1-0")
        # The other pod of the Job has ended, which the manager does not know yet.
        await group.come(FIRST_JOB, 2, 2)
        assert group.jobs() == [("test-js-w-1", "test-js-w-2")]
        rig.world.set_status("jobs", "test-js-w-1", succeeded=1, completedIndexes="1")
        rig.world.delete("pods", "test-js-w-1-1")
        await rig.settle()
        await come(rig, [*FIRST_JOB, "test-js-w-2-0", "test-js-w-2-1"], 3)

        assert rig.epochs() == (3, 2)


async def test_new_manager_continues_with_the_same_jobs(rig, group):
    """The assignment of Jobs is in the status."""
    async with rig.manager():
        await group.start(**SPARE_JOB)
        await group.lose("test-js-w-0-1")
    async with rig.manager():
        group.park("test-js-w-0-0", 2, None)
        await come(rig, ["test-js-w-1-0", "test-js-w-1-1"], 2)
        assert rig.epochs() == (2, 1)
        assert group.jobs() == [("test-js-w-0", "test-js-w-2")]
    async with rig.manager():
        group.park("test-js-w-0-0", 3)
        await rig.settle(30)

        assert rig.epochs() == (2, 1)
        assert rig.condition(keys.BARRIER_STALLED_CONDITION) is None


@pytest.mark.parametrize(
    ("spares", "pods"), [(0, 1000), (1, 1010)], ids=["without spares", "with spares"]
)
async def test_an_assignment_costs_no_request_for_each_pod(rig, group, spares, pods):
    """With 1,000 seats: one write begins a restart and one ends it, and there are their events."""
    async with rig.manager():
        await group.start(seats=100, jobs=10, spares=spares)
        assert len(group.pods) == pods
        rig.world.requests.clear()
        lost = "test-js-w-3-7"
        await group.lose(lost)
        names = [name for name, index in group.pods.items() if index < 100 and name != lost]
        if not spares:
            names.append(group.create(7, name=f"{lost}-again", job=job_of(rig, 3)))
        await group.come(names, 2, 1)

        assert rig.epochs() == (2, 1)
        assert len(group.seats() if spares else ()) == spares
        made = [
            (one.verb, one.resource, one.json["reason"] if one.resource == "events" else "")
            for one in rig.world.requests.writes
        ]
        print(f"requests of the manager for {pods} pods: {made}")
        writes = [one for one in made if one[1] != "events"]
        assert writes == [("patch", "jobsets/status", "")] * 2
        assert len(made) <= 4 + spares


SMALLER = ["test-js-w-0-0", "test-js-w-0-2"]


async def test_group_continues_with_fewer_pods_and_grows_when_the_missing_one_is_back(rig, group):
    """The write that lifts the barrier has the number of seats; growing does not count."""
    async with rig.manager():
        await group.start(seats=3, spares=0, least=2, maxRestarts=1)
        await group.lose("test-js-w-0-1")
        await group.come(SMALLER, 2, 0.5)
        assert rig.epochs() == (1, 1)
        await rig.settle(1)

        assert rig.epochs() == (2, 1)
        sizes = [{"job": "test-js-w-0", "seats": 2, "missing": 1, "done": False}]
        lift = next(body for body in rig.status_writes() if body.get("syncedEpoch") == 2)
        assert (lift["inPlaceRestart"]["jobSizes"], lift["inPlaceRestart"]["pods"]) == (sizes, 2)
        assert group.holders() == [(1, "test-js-w-0-2")]
        assert rig.status()["restartHistory"][-1]["pods"] == 2
        group.prepare(SMALLER)
        await rig.settle(100)
        assert rig.epochs() == (2, 1)

        again = group.create(1, name="again")
        group.park(again, 3, "parked")
        await rig.settle()
        assert rig.epochs() == (2, 1)
        group.park(again, 3)
        await rig.settle(0.1)
        assert rig.epochs() == (2, 2)
        await group.come(SMALLER, 3, 0.1)

        record = rig.status()["inPlaceRestart"]
        assert (rig.epochs(), record["jobSizes"], record["pods"]) == ((3, 2), [], 3)
        assert (record["restarts"], record["growths"]) == (1, 1)
        assert rig.status()["restartHistory"][-1]["cause"]["reason"] == "GroupGrows"
        assert [event[1] for event in rig.events(keys.GROUP_RESIZED_REASON)] == [
            "the group continues with 2 of 3 pods: 2 of job 'test-js-w-0'",
            "the group has its full size again: 3 pods",
        ]


@pytest.mark.parametrize("prepared", [True, False])
async def test_growth_waits_for_the_standby_processes_of_running_pods(rig, group, prepared):
    """It comes once all have reported theirs, or after 120 s: otherwise workers restart cold."""
    async with rig.manager():
        await group.start(seats=3, spares=0, least=2)
        await group.lose("test-js-w-0-1")
        await group.come(SMALLER, 2, 1.5)
        group.park(group.create(1, name="again"), 3)
        group.prepare(SMALLER[:1])
        await rig.settle(100)
        assert rig.epochs() == (2, 1)
        if prepared:
            group.prepare(SMALLER[1:])
        await rig.settle(1 if prepared else 30)
        assert rig.epochs() == (2, 2)


async def test_pod_that_comes_and_goes_restarts_the_others_less_and_less_often(rig, group):
    """Each growth in a row doubles the time before the next one, also for another manager."""
    async with rig.manager():
        await group.start(seats=3, spares=0, least=2, maxRestarts=100)
        group.prepare(SMALLER)  # their annotations stay in this test
        epoch, waits, name = 1, [], "test-js-w-0-1"
        for number in range(4):
            await group.lose(name)
            await group.come(SMALLER, epoch + 1, 1.5)
            epoch += 1
            assert (rig.epochs()[0], rig.status()["inPlaceRestart"]["pods"]) == (epoch, 2)
            name = group.create(1, name=f"again-{number}")
            group.park(name, epoch + 1)
            waits.append(0)
            while rig.epochs()[1] < epoch:
                await rig.settle(1)
                waits[-1] += 1
            await group.come(SMALLER, epoch + 1, 0.1)
            epoch += 1

    assert waits[0] == 1
    assert all(before * 1.5 < after for before, after in pairwise(waits[1:]))
    assert waits[-1] > 60


async def test_pod_that_was_missing_ends_when_all_others_have_succeeded(rig, group):
    """The status says so to its agent; the Job waits for its index."""
    async with rig.manager():
        await group.start(seats=3, spares=0, least=2)
        await group.lose("test-js-w-0-1")
        await group.come(SMALLER, 2, 1.5)
        for name in SMALLER:
            rig.world.set_status("pods", name, phase="Succeeded")
        rig.world.set_status("jobs", "test-js-w-0", succeeded=2, completedIndexes="0,2")
        await rig.settle()

        assert [one["done"] for one in rig.status()["inPlaceRestart"]["jobSizes"]] == [True]
        late = group.create(1, name="late")
        group.park(late, 3)
        await rig.settle(100)
        assert rig.epochs() == (2, 1)


SLICES = [f"test-js-w-{job}-{pod}" for job in range(3) for pod in range(2)]
OTHERS = [name for name in SLICES if not name.startswith("test-js-w-0-")]


def finish(rig, job):
    """Complete a Job as the Job controller does once each index has succeeded."""
    complete = [{"type": "Complete", "status": "True"}]
    rig.world.set_status("jobs", job, succeeded=2, completedIndexes="0,1", conditions=complete)


async def test_jobs_continue_without_one_that_misses_a_pod_and_grow_when_it_is_whole(rig, group):
    """The pod that it has waits like a spare; both of its seats come back in one restart."""
    async with rig.manager():
        await group.start(jobs=3, spares=0, least_jobs=2, maxRestarts=1)
        await group.lose("test-js-w-0-1")
        await group.come([*OTHERS, "test-js-w-0-0"], 2, 0.5)
        assert rig.epochs() == (1, 1)
        await rig.settle(1)

        record = rig.status()["inPlaceRestart"]
        sizes = [{"job": "test-js-w-0", "seats": 0, "missing": 2, "done": False}]
        assert (rig.epochs(), record["jobSizes"], record["pods"]) == ((2, 1), sizes, 4)
        assert (group.entries(), group.jobs()) == ([], [])
        group.prepare(OTHERS)
        group.park("test-js-w-0-0", 3)
        await rig.settle(100)
        assert rig.epochs() == (2, 1)

        group.park(group.create(1, name="again"), 3)
        await rig.settle(0.1)
        assert rig.epochs() == (2, 2)
        await group.come(OTHERS, 3, 0.1)

        record = rig.status()["inPlaceRestart"]
        assert (rig.epochs(), record["jobSizes"], record["pods"]) == ((3, 2), [], 6)
        assert (record["restarts"], record["growths"]) == (1, 1)
        assert [event[1] for event in rig.events(keys.GROUP_RESIZED_REASON)] == [
            "the group continues with 4 of 6 pods: 0 of job 'test-js-w-0'",
            "the group has its full size again: 6 pods",
        ]


async def test_too_few_jobs_wait_for_their_pods(rig, group):
    """Two of three have lost a pod, and two are the minimum."""
    async with rig.manager():
        await group.start(jobs=3, spares=0, least_jobs=2)
        await group.lose("test-js-w-0-1", "test-js-w-1-0")
        await group.come(
            [name for name in SLICES if name not in {"test-js-w-0-1", "test-js-w-1-0"}], 2, 100
        )

        assert rig.epochs() == (1, 1)


async def test_pods_of_a_job_without_seats_end_when_all_other_jobs_have_succeeded(rig, group):
    """Each of its indexes then succeeds, so that it completes, and so does the JobSet."""
    async with rig.manager():
        await group.start(jobs=3, spares=0, least_jobs=2)
        await group.lose("test-js-w-0-1")
        await group.come([*OTHERS, "test-js-w-0-0"], 2, 1.5)
        group.park("test-js-w-0-0", 3)
        done = []
        for job in (1, 2):
            for pod in (0, 1):
                rig.world.set_status("pods", f"test-js-w-{job}-{pod}", phase="Succeeded")
            finish(rig, f"test-js-w-{job}")
            await rig.settle()
            done += [one["done"] for one in rig.status()["inPlaceRestart"]["jobSizes"]]
        assert (rig.epochs(), done) == ((2, 1), [False, True])

        group.park(group.create(1, name="again"), 3)
        for name in ("test-js-w-0-0", "again"):
            rig.world.set_status("pods", name, phase="Succeeded")
        finish(rig, "test-js-w-0")
        await rig.settle()
        assert rig.condition("Completed")[0] == "True"
        assert rig.epochs() == (2, 1)
