"""No pod of a startup group continues before all have started, with any state of the caches (KEP-498).

A JobSet is restarted and resumed, and its pods start; some writes to its Jobs fail, and the pods of
suspended Jobs are deleted late. The manager sees this in three streams (JobSet, Jobs, pods), each in
order and with any delay. Whenever a view makes the manager release an attempt, every Job that really
exists at that attempt or an older one must have had all its pods started; and no Job that is created
or resumed later may be of an attempt that was released.
"""

from __future__ import annotations

import copy

import attrs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.group_signal import lifted_attempt, started_value
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.startup_groups.ledger import StartLedger
from jobsetpy.reconcilers.startup_groups.release import released_attempt
from support.jobsets import ModelCluster, decoded, jobset_json, replicated_job
from support.restarts import epoch_plans

PODS = 1
OUTSIDE = "0"
"""Stands for the attempt of a Job that was created before the JobSet had a group."""
RULES = [
    {"name": "one", "action": "RestartJob", "onJobFailureReasons": ["One"]},
    {"name": "part", "action": "RestartReplicatedJob", "onJobFailureReasons": ["Part"]},
]


class Truth:
    """The real state of the cluster, and the streams of its changes."""

    def __init__(self, *, grouped=True):
        body = jobset_json(
            replicated_job("a", 2, parallelism=PODS),
            replicated_job("b", parallelism=PODS),
            **({"groupSchedulingConfig": {}} if grouped else {}),
            failurePolicy={"maxRestarts": 1000, "rules": RULES},
        )
        body["metadata"]["generation"] = 1
        self.cluster = ModelCluster(body)
        self.pods = {}  # (Job's UID, its attempt, index) → started
        self.ever = {}  # (Job's UID, its attempt) → indexes that have ever started
        self.streams = {"jobset": [], "job": [], "pod": []}
        self.known = {}
        self.runs = set()  # UID and attempt of all Jobs that have ever existed
        self.step(0)

    def step(self, failing):
        """Run one pass of the jobs reconciler, of which one write may fail."""
        plan = self.cluster.plan()
        actions = tuple(a for at, a in enumerate(plan.actions) if at + 1 != failing)
        whole = len(actions) == len(plan.actions)
        status = plan.status if whole else plan.partial_status
        self.cluster.carry_out(attrs.evolve(plan, actions=actions, status=status))
        self.publish()

    def new_runs(self):
        """Return the attempts of Jobs that were created or resumed since the last call."""
        runs = {(job["metadata"]["uid"], attempt_of(job)) for job in self.cluster.jobs.values()}
        new, self.runs = runs - self.runs, self.runs | runs
        return [int(attempt) for _, attempt in new if attempt != OUTSIDE]

    def publish(self):
        """Append changes to the streams; pods follow their Jobs."""
        self.streams["jobset"].append(copy.deepcopy(self.cluster.object))
        jobs = self.cluster.jobs
        for name in self.known.keys() | jobs.keys():
            old, new = self.known.get(name), jobs.get(name)
            if old != new:
                replaced = old and new and old["metadata"]["uid"] != new["metadata"]["uid"]
                if replaced:
                    self.streams["job"].append((name, None))
                self.streams["job"].append((name, copy.deepcopy(new)))
        self.known = copy.deepcopy(jobs)
        wanted = {
            (job["metadata"]["uid"], attempt_of(job), index)
            for job in jobs.values()
            if not job["spec"]["suspend"] and "deletionTimestamp" not in job["metadata"]
            for index in range(PODS)
        }
        for pod in wanted - set(self.pods):
            self.pods[pod] = False
            self.streams["pod"].append((pod, False))

    def reap(self):
        """Delete pods of Jobs that no longer run."""
        runs = {
            (job["metadata"]["uid"], attempt_of(job))
            for job in self.cluster.jobs.values()
            if not job["spec"]["suspend"]
        }
        for pod in [pod for pod in self.pods if pod[:2] not in runs]:
            del self.pods[pod]
            self.streams["pod"].append((pod, None))

    def start(self, at):
        """Run the barrier of a pod."""
        waiting = sorted(
            pod for pod, started in self.pods.items() if not started and pod[1] != OUTSIDE
        )
        if waiting:
            pod = waiting[at % len(waiting)]
            self.pods[pod] = True
            self.ever.setdefault(pod[:2], set()).add(pod[2])
            self.streams["pod"].append((pod, True))

    def start_all(self):
        """Run all barriers."""
        for _ in self.pods:
            self.start(0)

    def fail(self, at, reason):
        """Fail a Job: all, some or one are recreated."""
        names = sorted(
            name
            for name, job in self.cluster.jobs.items()
            if "deletionTimestamp" not in job["metadata"]
            and not job.get("status", {}).get("conditions")
        )
        if names:
            self.cluster.fail(names[at % len(names)], reason)
            self.publish()

    def group(self):
        """Add the configuration; existing Jobs have no barrier."""
        if "groupSchedulingConfig" not in self.cluster.object["spec"]:
            self.cluster.change_spec(groupSchedulingConfig={})
            self.cluster.object["metadata"]["generation"] += 1
            self.publish()

    def suspend(self, on):
        """Suspend or resume."""
        if self.cluster.object["spec"].get("suspend", False) != on:
            self.cluster.change_spec(suspend=on)
            self.cluster.object["metadata"]["generation"] += 1
            self.publish()

    def collect(self, at):
        """Delete a Job that is being deleted."""
        going = sorted(
            name
            for name, job in self.cluster.jobs.items()
            if "deletionTimestamp" in job["metadata"]
        )
        if going:
            self.cluster.collect(going[at % len(going)])
            self.publish()


def attempt_of(job):
    """Return the attempt in a Job's annotation."""
    return job["metadata"]["annotations"].get(keys.GROUP_ATTEMPT, OUTSIDE)


class View:
    """The objects that a manager has seen so far."""

    def __init__(self, truth):
        self.truth = truth
        self.at = dict.fromkeys(truth.streams, 0)
        self.jobset = None
        self.jobs, self.pods = {}, {}
        self.ledger = StartLedger()
        self.released = 0

    def see(self, stream, number):
        """See more of a stream; after each change the manager decides."""
        for _ in range(number):
            events = self.truth.streams[stream]
            if self.at[stream] == len(events):
                return
            event = events[self.at[stream]]
            self.at[stream] += 1
            if stream == "jobset":
                self.jobset = decoded(JobSet, event)
            elif stream == "job":
                name, body = event
                new = None if body is None else decoded(Job, body)
                self.ledger.job_changed(self.jobs.pop(name, None), new)
                if new is not None:
                    self.jobs[name] = new
            else:
                key, started = event
                new = None if started is None else make_pod(key, started)
                self.ledger.pod_changed(self.pods.pop(key, None), new)
                if new is not None:
                    self.pods[key] = new
            self.decide()

    def decide(self):
        """Release if the view allows it, and check that against the real state."""
        if self.jobset is None or self.jobset.spec.suspend:
            return
        if self.jobset.spec.group_scheduling_config is None:
            return
        attempt = released_attempt(self.jobset, self.jobs.values(), self.ledger, Features())
        if attempt <= self.released:
            return
        self.released = attempt
        value = started_value("js-uid", attempt)
        for job in self.truth.cluster.jobs.values():
            own = int(attempt_of(job))
            if attempt_of(job) == OUTSIDE or lifted_attempt(value, "js-uid") < own:
                continue
            started = self.truth.ever.get((job["metadata"]["uid"], attempt_of(job)), set())
            assert started == set(range(PODS)), (attempt, job["metadata"]["name"])


def make_pod(key, started):
    """Return a pod of a Job's attempt."""
    owner, attempt, _ = key
    state = {"running": {}} if started else {"waiting": {}}
    statuses = [{"name": keys.GROUP_INIT_CONTAINER, "state": state}]
    notes = {} if attempt == OUTSIDE else {keys.GROUP_ATTEMPT: attempt}
    status = {"phase": "Pending", "initContainerStatuses": statuses}
    return epoch_plans.pod(str(key), None, job=owner, notes=notes, **status)


small = st.integers(0, 7)
moves = st.one_of(
    st.tuples(st.just("start"), small),
    st.tuples(st.just("start_all")),
    st.tuples(st.just("fail"), small, st.sampled_from(["One", "Part", "All"])),
    st.tuples(st.just("group")),
    st.tuples(st.just("suspend"), st.booleans()),
    st.tuples(st.just("collect"), small),
    st.tuples(st.just("step"), st.integers(0, 3)),
    st.tuples(st.just("step"), st.just(0)),
    st.tuples(st.just("reap")),
    st.tuples(st.just("see"), st.sampled_from(["jobset", "job", "pod"]), st.integers(1, 9)),
    st.tuples(st.just("see"), st.sampled_from(["jobset", "job", "pod"]), st.just(99)),
)


def seen(*streams):
    """Return moves with which the manager sees all of these streams."""
    return [("see", stream, 99) for stream in streams]


ALL = seen("jobset", "job", "pod")
HALF_RECREATED = [
    ("start_all",),
    *ALL,
    ("fail", 2, "All"),
    ("step", 0),
    # One Job of the attempt before still exists when the others have been recreated.
    ("step", 1),
    ("collect", 0),
    ("collect", 0),
    ("step", 1),
    ("start_all",),
]
HALF_RESUMED = [("suspend", True), ("step", 0), ("suspend", False), ("step", 1), ("start_all",)]
ADDED = [("suspend", True), ("step", 0), ("group",), *ALL, ("suspend", False), ("step", 2)]
ADDED_LATE = [("group",), ("fail", 0, "One"), ("step", 0), ("collect", 0), ("step", 0)]
AT_LAST = [("step", 0), ("collect", 0), ("step", 0)]


@example(history=[*HALF_RECREATED, *ALL, *AT_LAST], grouped=True)
@example(history=[*HALF_RECREATED, *seen("job", "pod"), *AT_LAST], grouped=True)
@example(history=[("start_all",), *HALF_RESUMED, *ALL, *AT_LAST], grouped=True)
@example(history=[*ADDED, ("start_all",), *ALL, *AT_LAST], grouped=False)
@example(history=[*ADDED_LATE, *ALL, ("start_all",), *ALL, *AT_LAST], grouped=False)
@settings(max_examples=150)
@given(history=st.lists(moves, max_size=60), grouped=st.booleans())
def test_none_continues_too_early_and_all_in_the_end(history, grouped):
    """It is safe in every view, and live once the views are up to date."""
    truth = Truth(grouped=grouped)
    view = View(truth)
    for name, *arguments in history:
        getattr(view if name == "see" else truth, name)(*arguments)
        assert all(attempt > view.released for attempt in truth.new_runs())
    truth.suspend(False)
    for _ in range(20):
        truth.step(0)
        truth.reap()
        for _ in range(3):
            truth.collect(0)
        truth.start_all()
    for stream in truth.streams:
        view.see(stream, 10_000)
    view.decide()

    newest = max(int(attempt_of(job)) for job in truth.cluster.jobs.values())
    assert view.released == newest
