"""No pod of a group goes on before all have started, whatever the caches show (KEP-498).

A JobSet lives through restarts, resumptions and starts of pods; writes to its Jobs fail now and
then, and the pods of suspended Jobs linger. What the manager sees of it comes in three streams
(JobSet, Jobs, pods), each in order and each as late as it likes. Whenever a view makes the manager
release an attempt, every Job that exists *in truth* at that attempt or an older one must have had all
its pods started; and no Job that is made or resumed later may be of an attempt that was released.
"""

from __future__ import annotations

import copy

import attrs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.group_signal import lifted_attempt, started_value
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.startup_groups.ledger import StartLedger
from jobsetpy.reconcilers.startup_groups.release import released_attempt
from jobsetpy.testing.jobsets import ModelCluster, decoded, jobset_json, replicated_job

PODS = 1
OUTSIDE = "0"
"""In place of the attempt of a Job that was made before the JobSet had a group."""
RULES = [
    {"name": "one", "action": "RestartJob", "onJobFailureReasons": ["One"]},
    {"name": "part", "action": "RestartReplicatedJob", "onJobFailureReasons": ["Part"]},
]


class Truth:
    """The cluster as it is, and the streams of what happened in it."""

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
        self.ever = {}  # (Job's UID, its attempt) → indexes that ever started
        self.streams = {"jobset": [], "job": [], "pod": []}
        self.known = {}
        self.runs = set()  # Job's UID and attempt, of all Jobs that ever were
        self.step(0)

    def step(self, failing):
        """One pass of the jobs reconciler of which some write may fail."""
        plan = self.cluster.plan()
        actions = tuple(a for at, a in enumerate(plan.actions) if at + 1 != failing)
        whole = len(actions) == len(plan.actions)
        status = plan.status if whole else plan.partial_status
        self.cluster.carry_out(attrs.evolve(plan, actions=actions, status=status))
        self.publish()

    def new_runs(self):
        """Jobs that were made or resumed since this was asked last: their attempts."""
        runs = {(job["metadata"]["uid"], attempt_of(job)) for job in self.cluster.jobs.values()}
        new, self.runs = runs - self.runs, self.runs | runs
        return [int(attempt) for _, attempt in new if attempt != OUTSIDE]

    def publish(self):
        """Put what changed into the streams; pods follow their Jobs."""
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
        """Pods that should not be there any more are gone."""
        runs = {
            (job["metadata"]["uid"], attempt_of(job))
            for job in self.cluster.jobs.values()
            if not job["spec"]["suspend"]
        }
        for pod in [pod for pod in self.pods if pod[:2] not in runs]:
            del self.pods[pod]
            self.streams["pod"].append((pod, None))

    def start(self, at):
        """The barrier of some pod runs."""
        waiting = sorted(
            pod for pod, started in self.pods.items() if not started and pod[1] != OUTSIDE
        )
        if waiting:
            pod = waiting[at % len(waiting)]
            self.pods[pod] = True
            self.ever.setdefault(pod[:2], set()).add(pod[2])
            self.streams["pod"].append((pod, True))

    def start_all(self):
        """All barriers run."""
        for _ in self.pods:
            self.start(0)

    def fail(self, at, reason):
        """Some Job fails: all, some or one are made anew."""
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
        """The user adds the configuration; Jobs that are there have no barrier."""
        if "groupSchedulingConfig" not in self.cluster.object["spec"]:
            self.cluster.change_spec(groupSchedulingConfig={})
            self.cluster.object["metadata"]["generation"] += 1
            self.publish()

    def suspend(self, on):
        """The user suspends or resumes."""
        if self.cluster.object["spec"].get("suspend", False) != on:
            self.cluster.change_spec(suspend=on)
            self.cluster.object["metadata"]["generation"] += 1
            self.publish()

    def collect(self, at):
        """A Job that is being deleted is gone."""
        going = sorted(
            name
            for name, job in self.cluster.jobs.items()
            if "deletionTimestamp" in job["metadata"]
        )
        if going:
            self.cluster.collect(going[at % len(going)])
            self.publish()


def attempt_of(job):
    """As its annotation says."""
    return job["metadata"]["annotations"].get(keys.GROUP_ATTEMPT, OUTSIDE)


class View:
    """What a manager has seen so far."""

    def __init__(self, truth):
        self.truth = truth
        self.at = dict.fromkeys(truth.streams, 0)
        self.jobset = None
        self.jobs, self.pods = {}, {}
        self.ledger = StartLedger()
        self.released = 0

    def see(self, stream, number):
        """Some more of a stream; after each change the manager decides."""
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
        """Release if the view says so, and check that against the truth."""
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
    """A pod of a Job's attempt."""
    owner, attempt, index = key
    meta = {"name": f"{owner}-{attempt}-{index}", "namespace": "default", "uid": str(key),
            "annotations": {} if attempt == OUTSIDE else {keys.GROUP_ATTEMPT: attempt},
            "ownerReferences": [{"kind": "Job", "uid": owner, "controller": True}]}  # fmt: skip
    state = {"running": {}} if started else {"waiting": {}}
    statuses = [{"name": keys.GROUP_INIT_CONTAINER, "state": state}]
    status = {"phase": "Pending", "initContainerStatuses": statuses}
    return decoded(ChildPod, {"metadata": meta, "status": status})


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
    """The manager has seen all of these streams."""
    return [("see", stream, 99) for stream in streams]


ALL = seen("jobset", "job", "pod")
HALF_RECREATED = [
    ("start_all",),
    *ALL,
    ("fail", 2, "All"),
    ("step", 0),
    # One Job of the attempt before is still there when the others have been made anew.
    ("step", 1),
    ("collect", 0),
    ("collect", 0),
    ("step", 1),
    ("start_all",),
]
HALF_RESUMED = [("suspend", True), ("step", 0), ("suspend", False), ("step", 1), ("start_all",)]
ADDED = [("suspend", True), ("step", 0), ("group",), *ALL, ("suspend", False), ("step", 2)]
ADDED_LATE = [("group",), ("fail", 0, "One"), ("step", 0), ("collect", 0), ("step", 0)]
IN_THE_END = [("step", 0), ("collect", 0), ("step", 0)]


@example(history=[*HALF_RECREATED, *ALL, *IN_THE_END], grouped=True)
@example(history=[*HALF_RECREATED, *seen("job", "pod"), *IN_THE_END], grouped=True)
@example(history=[("start_all",), *HALF_RESUMED, *ALL, *IN_THE_END], grouped=True)
@example(history=[*ADDED, ("start_all",), *ALL, *IN_THE_END], grouped=False)
@example(history=[*ADDED_LATE, *ALL, ("start_all",), *ALL, *IN_THE_END], grouped=False)
@settings(max_examples=150)
@given(history=st.lists(moves, max_size=60), grouped=st.booleans())
def test_none_continues_too_early_and_all_in_the_end(history, grouped):
    """Safe at every view, and live once the views have caught up."""
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
