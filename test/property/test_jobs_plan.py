"""Properties of the jobs plan in random lives of random JobSets."""

from __future__ import annotations

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.reconcilers.jobs.plan import plan_jobs
from jobsetpy.reconcilers.rules import plan as p
from jobsetpy.reconcilers.rules.conditions import finished
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from support.jobsets import ModelCluster, jobset_json, merge, replicated_job

ACTIONS = ["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartJob",
           "RestartJobAndIgnoreMaxRestarts", "RestartReplicatedJob",
           "RestartReplicatedJobAndIgnoreMaxRestarts", "FailJob"]  # fmt: skip
LENIENT = ("FailJob", "RestartReplicatedJob", "RestartJobSet", "RestartJob")
NAMES = ["a", "b", "c"]


@st.composite
def jobsets(draw, actions=tuple(ACTIONS), max_restarts=3):
    """Generate a JobSet with up to three ReplicatedJobs and any policies."""
    names = NAMES[: draw(st.integers(1, 3))]
    in_order = draw(st.booleans())
    items = []
    for number, name in enumerate(names):
        depends = []
        if number and not in_order and draw(st.booleans()):
            depends = [(names[number - 1], draw(st.sampled_from(["Ready", "Complete"])))]
        items.append(replicated_job(name, draw(st.integers(0, 3)), depends_on=depends))
    spec = {"startupPolicy": {"startupPolicyOrder": "InOrder" if in_order else "AnyOrder"}}
    spec["successPolicy"] = {
        "operator": draw(st.sampled_from(["All", "Any"])),
        "targetReplicatedJobs": draw(st.lists(st.sampled_from(names), unique=True)),
    }
    if draw(st.booleans()):
        spec["failurePolicy"] = {
            "maxRestarts": draw(st.integers(0, max_restarts)),
            "restartStrategy": draw(st.sampled_from(["Recreate", "BlockingRecreate"])),
            "rules": [
                {
                    "name": f"r{i}",
                    "action": draw(st.sampled_from(actions)),
                    "onJobFailureReasons": draw(st.lists(st.sampled_from(["X", "Y"]), max_size=1)),
                    "targetReplicatedJobs": draw(st.lists(st.sampled_from(names), max_size=1)),
                }
                for i in range(draw(st.integers(0, 3)))
            ],
        }
    return jobset_json(*items, suspend=draw(st.booleans()), **spec)


EVENTS = ["ready", "complete", "fail X", "fail Y", "collect", "suspend", "resume", "delete", "mark",
          "pass", "half a pass", "end"]  # fmt: skip


def lives(*more):
    """Generate random lives; ``more`` are events that a JobSet may not recover from."""
    kinds = st.sampled_from([*EVENTS, *more])
    return st.lists(st.tuples(kinds, st.integers(0, 8)), max_size=14)


STEPS = lives()
STEP_KINDS = st.sampled_from(["complete", "fail X", "fail Y", "ready"])


def step(cluster, what, number):
    """Apply an event to the cluster, if it is possible now."""
    if what in {"suspend", "resume"}:
        cluster.change_spec(suspend=what == "suspend")
        return
    if what in {"gate on", "gate off"}:
        cluster.features = Features(restart_job=what == "gate on")
        return
    if what == "pass":
        cluster.carry_out(cluster.plan())
        return
    if what == "half a pass":
        plan = cluster.plan()
        actions = plan.actions[:number]
        status = plan.status if actions == plan.actions else plan.partial_status
        cluster.carry_out(attrs.evolve(plan, actions=actions, status=status))
        return
    if what == "end":
        end(cluster)
        return
    if what == "collect":
        cluster.collect()
        return
    names = sorted(cluster.jobs)
    if not names:
        return
    name = names[number % len(names)]
    if what == "mark":
        mark = {"metadata": {"annotations": {keys.RESTART_ANNOTATION: "now"}}}
        cluster.jobs[name] = merge(cluster.jobs[name], mark)
        return
    if what == "edit":
        label = (keys.RESTART_ATTEMPT, keys.JOB_INDEX, keys.REPLICATED_JOB_NAME)[number % 3]
        cluster.jobs[name]["metadata"]["labels"][label] = "edited"
        return
    if cluster.job(name).status.finished is not None:
        return
    if what.startswith("fail"):
        cluster.fail(name, what[5:], after=number)
    elif what == "delete":
        del cluster.jobs[name]
    else:
        getattr(cluster, what)(name)


def end(cluster):
    """End the JobSet as another writer of its status."""
    if finished(cluster.status.conditions) is None:
        draft = StatusDraft(cluster.status, cluster.clock)
        draft.fail(keys.REACHED_MAX_RESTARTS_REASON, "all restarts are used up")
        cluster.object["status"] = merge(cluster.object.get("status"), draft.change().patch)


def lived(data, steps):
    """Return a cluster after some events."""
    cluster = ModelCluster(data)
    for what, number in steps:
        step(cluster, what, number)
    return cluster


@settings(max_examples=150)
@given(jobsets(), lives("gate on", "gate off"))
def test_plans_come_to_rest(data, steps):
    """After any events, executing plans ends with an empty one."""
    cluster = lived(data, steps)
    cluster.reconcile(limit=30)

    assert cluster.plan().empty


@settings(max_examples=300)
@given(jobsets(), lives("edit"))
def test_finished_jobset_has_no_running_job(data, steps):
    """This holds however it ended, and after any events."""
    cluster = lived(data, steps)
    cluster.reconcile(limit=30)
    end(cluster)
    cluster.reconcile(limit=30)
    cluster.collect()

    assert [name for name in cluster.jobs if cluster.job(name).status.finished is None] == []


@settings(max_examples=150)
@given(jobsets(), STEPS, st.randoms(use_true_random=False))
def test_order_of_jobs_does_not_matter(data, steps, random):
    """A cache may list them in any order."""
    observed = lived(data, steps).observe()
    shuffled = list(observed.jobs)
    random.shuffle(shuffled)
    now = ModelCluster(data).now

    def outcome(plan):
        return (
            {repr(action) for action in plan.actions},
            plan.status and (plan.status.patch, plan.status.events),
        )

    shuffled = plan_jobs(attrs.evolve(observed, jobs=shuffled), p.JobsMemory(), now)
    assert outcome(shuffled) == outcome(plan_jobs(observed, p.JobsMemory(), now))


@settings(max_examples=150)
@given(jobsets(), STEPS)
def test_restart_counters_never_decrease(data, steps):
    """They grow by one at a time, and a finished JobSet does not change."""
    cluster = ModelCluster(data)
    before = cluster.status
    for what, number in steps:
        step(cluster, what, number)
        after = cluster.status
        assert before.restarts <= after.restarts <= before.restarts + 1
        assert before.restarts_count_towards_max <= after.restarts_count_towards_max
        if before.terminal_state:
            assert before.terminal_state == after.terminal_state
            assert before.restarts == after.restarts
        before = after


@settings(max_examples=150)
@given(jobsets(), STEPS, st.lists(st.booleans(), min_size=2, max_size=6))
def test_one_failure_counts_once_under_stale_caches(data, steps, stale):
    """Passes with an old cache never count a failure twice: their write conflicts.

    The model of the API server stores a status patch only if the resourceVersion that the pass
    saw is the current one.
    """
    cluster = lived(data, steps)
    for name in cluster.jobs:
        if cluster.job(name).status.finished is None:
            cluster.fail(name, "X", after=99)
            break
    version = 0
    old = (cluster.observe(), version)
    before = cluster.status
    restarted = 0
    for use_old in stale:
        observed, seen = old if use_old else (cluster.observe(), version)
        write = plan_jobs(observed, p.JobsMemory(), cluster.now).status
        if write is not None and write.patch and seen == version:
            cluster.object["status"] = merge(cluster.object.get("status"), write.patch)
            version += 1
            restarted += sum(write.restarted.values())

    after = cluster.status
    assert after.restarts <= before.restarts + 1
    counted = [
        status.restarts_count_towards_max
        + sum(sum(item.job_restarts_count_towards_max) for item in status.replicated_jobs_status)
        for status in (before, after)
    ]
    # Every failed Job counts once.
    failed = sum(
        1
        for name in cluster.jobs
        if (end := cluster.job(name).status.finished) is not None and end.type == "Failed"
    )
    assert restarted <= failed
    assert counted[0] <= counted[1] <= counted[0] + restarted


@settings(max_examples=200)
@given(
    jobsets(LENIENT, 99), STEPS, st.lists(st.lists(STEP_KINDS, min_size=9, max_size=9), max_size=5)
)
def test_jobset_never_hangs(data, steps, rounds):
    """If all its Jobs have ended, it has ended or has something to do."""
    cluster = lived(data, steps)
    cluster.change_spec(suspend=False)
    spec = cluster.jobset.spec
    targets = spec.success_policy.target_replicated_jobs
    # A JobSet whose target Jobs have no replicas never completes.
    wanted = any(i.replicas for i in spec.replicated_jobs if not targets or i.name in targets)
    for kinds in [*rounds, ["complete"] * 9, []]:
        for _ in range(4):
            cluster.reconcile(limit=30)
            cluster.collect()
        cluster.reconcile(limit=30)
        ended = all(cluster.job(name).status.finished is not None for name in cluster.jobs)
        assert not (wanted and ended) or cluster.status.terminal_state
        for number, (name, kind) in enumerate(zip(sorted(cluster.jobs), kinds, strict=False)):
            if cluster.job(name).status.finished is None:
                step(cluster, kind, number)


@settings(max_examples=150)
@given(jobsets(), STEPS)
def test_plans_agree_with_the_existing_jobs(data, steps):
    """No existing Job is created, and none that is being deleted is deleted again."""
    cluster = lived(data, steps)
    plan = cluster.plan()
    created = [action.name for action in plan.actions if isinstance(action, p.CreateJob)]
    deleted = [action.name for action in plan.actions if isinstance(action, p.DeleteJob)]

    assert len(created) == len(set(created))
    assert not set(created) & cluster.jobs.keys()
    assert all(cluster.job(name).metadata.deletion_timestamp is None for name in deleted)
    for action in plan.actions:
        if isinstance(action, p.CreateJob):
            labels = action.body["metadata"]["labels"]
            assert str(cluster.status.restarts) == labels[keys.RESTART_ATTEMPT]
            assert cluster.jobset.spec.suspend is action.body["spec"]["suspend"]
