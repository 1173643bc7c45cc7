"""Reports of supervisors about their workers, restarts without progress, and requested restarts."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.agent_reports import MAX_STEP
from jobsetpy.api.jobset import RestartCause
from jobsetpy.api.worker_reports import (
    FirstProgress,
    WorkerEnd,
    parse_cause,
    parse_first,
    parse_progress,
)
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import LONGEST_REQUEST
from jobsetpy.reconcilers.restart_in_place.failures.cause import FailureKind, reported_cause
from jobsetpy.reconcilers.restart_in_place.failures.pod_changes import Failure, kind_of
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import (
    Arrival,
    EpochSeen,
    FirstOfRun,
    GroupCounts,
    Observations,
)
from jobsetpy.reconcilers.restart_in_place.observed.ledger import EpochLedger
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
from jobsetpy.reconcilers.restart_in_place.steps.transition import cause_of
from support.jobsets import replicated_job
from support.restarts import epoch_plans
from support.restarts.epoch_plans import GROUP, at, job, observed, stored

LIMIT, REQUEST = keys.MAX_WITHOUT_PROGRESS_ANNOTATION, keys.RESTART_IN_PLACE_ANNOTATION


def jobset(synced=1, deprecated=0, *, notes=None, max_restarts=10, **status):
    """Return a JobSet of one Job with four pods."""
    given = {"notes": notes, "max_restarts": max_restarts, "status": status}
    return epoch_plans.jobset(synced, deprecated, **given)


def pod(name="p", epoch=1, *, cause=None, progress=None, first=None, **fields):
    """Return a pod of the Job, as its agent reports it."""
    notes = {keys.RESTART_CAUSE_ANNOTATION: cause, keys.PROGRESS_ANNOTATION: progress,
             keys.FIRST_PROGRESS_ANNOTATION: first}  # fmt: skip
    return epoch_plans.pod(name, epoch, node="n1", notes=notes, **fields)


def plan(of, epochs, *, memory=None, notes=None, seconds=100.0, **counts):
    """Return the plan of one reconcile."""
    seen = observed(of, GroupCounts(epochs, **counts), notes=notes)
    return plan_epochs(seen, memory or EpochState(uid="js-uid"), at(seconds))


def plan_of(of, book):
    """Return the plan of one reconcile with the pods of a ledger."""
    seen = observed(of, book.histogram(GROUP), notes=book.notes(GROUP))
    return plan_epochs(seen, EpochState(uid="js-uid"), at(100.0))


def restarting(planned):
    """Return status, reason and message of the condition."""
    kind = keys.RESTARTING_IN_PLACE_CONDITION
    found = [c for c in planned.status.status.conditions if c.type == kind]
    return [(c.status, c.reason, c.message) for c in found]


# ---- reading -------------------------------------------------------------------------------------

CAUSES = {
    None: None,
    "exit-code=137": WorkerEnd("exit-code", 137),
    "no-progress=300": WorkerEnd("no-progress", 300),
    "exit-code=1 ValueError: no": WorkerEnd("exit-code", 1, "ValueError: no"),
    "exit-code=1 a\tb": WorkerEnd("exit-code", 1),
    f"exit-code=1 {'x' * 121}": None,
    "exit-code=0": None,
    "exit-code=256": None,
    "exit-code=-1": None,
    "exit-code=1 ": None,
    "exit-code=1\n": None,
    "exit-code=١": None,
    "exit-code=007": None,
    "no-progress=99999999999": None,
    "restart=1": None,
    "": None,
    "exit-code=1" * 100_000: None,
}


@pytest.mark.parametrize("text", CAUSES, ids=lambda text: repr(text)[:20])
def test_causes_are_parsed_strictly(text):
    """There are two forms; any other text is ignored."""
    assert parse_cause(text) == CAUSES[text]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        *[(None, None), ("0", 0), ("1234", 1234), ("touched", -1), (str(MAX_STEP), MAX_STEP)],
        *[(str(MAX_STEP + 1), None), ("-1", None), ("1_0", None), ("", None), ("012", None)],
        ("9" * 1_000_000, None),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_steps_are_parsed_strictly(text, step):
    """A number of at most 63 bits, or the word for a touched file."""
    assert parse_progress(text) == step


def test_long_reports_are_cut():
    """A client that may write pods must not fill the cache of the manager."""
    one = pod(cause="x" * 200_000, progress="9" * 200_000)

    assert len(one.metadata.annotations.restart_cause) == 161  # with the worker's last words
    assert len(one.metadata.annotations.progress) == 65


# ---- causes --------------------------------------------------------------------------------------


def ledger(*pods):
    """Return a ledger that has observed changes of pods."""
    book = EpochLedger()
    book.job_changed(None, job())
    for before, after in pods:
        book.pod_changed(before, after, 5.0)
    return book


def test_first_worker_that_fails_is_the_reported_one():
    """Workers that end later because of it do not replace it."""
    book = ledger(
        (None, pod("a")),
        (None, pod("b")),
        (pod("a"), pod("a", 2, cause="exit-code=137", progress="7")),
        (pod("b"), pod("b", 2, cause="exit-code=1", progress="9")),
    )

    assert book.notes(GROUP).reported == reported_cause(pod("a", 2, cause="exit-code=137"), 1)
    assert book.histogram(GROUP).progress == (2, 9)


def test_last_error_line_of_a_worker_is_in_its_cause():
    """For the condition, the event and the history."""
    words = "RuntimeError: CUDA error: out of memory"
    book = ledger((None, pod("a")), (pod("a"), pod("a", 2, cause=f"exit-code=1 {words}")))
    cause = book.notes(GROUP).reported

    assert str(cause) == f"pod 'a': its worker ended with exit code 1: {words}"
    assert cause_of(cause, Arrival()).message == words


def test_report_is_ignored_when_it_is_invalid():
    """The restart is the same, and its cause is the pod."""
    book = ledger((None, pod("a")), (pod("a"), pod("a", 2, cause="rm -rf", progress="many")))

    assert book.notes(GROUP).reported is None
    assert book.histogram(GROUP).progress == (0, -1)


def test_progress_is_known_when_the_job_comes_after_its_pods():
    """A manager that starts observes them in any order."""
    book = EpochLedger()
    book.pod_changed(None, pod("a", 2, progress="7"))
    book.pod_changed(None, pod("b", 2, progress="12"))
    book.pod_changed(None, pod("c", 1, progress="99"))
    book.job_changed(None, job())

    assert book.histogram(GROUP).progress == (2, 12)


@pytest.mark.parametrize(
    ("end", "step", "reason", "text", "cause"),
    [
        pytest.param(
            "exit-code=137",
            "7",
            "WorkerFailed",
            "pod 'p': its worker ended with exit code 137 (SIGKILL)",
            RestartCause(reason="WorkerFailed", pod="p", node="n1", exit_code=137),
            id="killed",
        ),
        pytest.param(
            "exit-code=7",
            None,
            "WorkerFailed",
            "pod 'p': its worker ended with exit code 7",
            RestartCause(reason="WorkerFailed", pod="p", node="n1", exit_code=7),
            id="failed",
        ),
        pytest.param(
            "no-progress=300",
            "1234",
            "WorkerHung",
            "pod 'p': no progress for 300 s at step 1234",
            RestartCause(
                reason="WorkerHung",
                pod="p",
                node="n1",
                message="no progress for 300 s at step 1234",
            ),
            id="hung",
        ),
        pytest.param(
            "no-progress=47 the limit follows from the longest step, 9.4 s",
            "3",
            "WorkerHung",
            "pod 'p': no progress for 47 s at step 3 (the limit follows from the longest step, "
            "9.4 s)",
            RestartCause(
                reason="WorkerHung",
                pod="p",
                node="n1",
                message="no progress for 47 s at step 3 (the limit follows from the longest step, "
                "9.4 s)",
            ),
            id="hung-with-automatic-limit",
        ),
        pytest.param(
            "log-rule=1 nan: loss=nan",
            "3",
            "LogRule",
            "pod 'p': log rule nan: loss=nan",
            RestartCause(reason="LogRule", pod="p", node="n1", message="nan: loss=nan"),
            id="log-rule",
        ),
    ],
)
def test_cause_is_shown_as_the_supervisor_reported_it(end, step, reason, text, cause):
    """Condition, event, history and metric name the pod and the end of its worker."""
    ended = reported_cause(pod("p", 2, cause=end, progress=step), 1)
    notes = Observations(newest_epoch_seen=EpochSeen(2, 99.0), reported=ended)
    done = plan(jobset(), {1: 3, 2: 1}, notes=notes)

    message = f"{text}: restarting in place from epoch 1 to 2, 3 pods to follow"
    assert restarting(done) == [("True", reason, message)]
    assert [event.message for event in done.status.events] == [message]
    assert done.status.status.restart_history[-1].cause == cause
    assert done.measured.begun.cause.condition_reason == reason
    assert done.status.status.in_place_restart.restarts == 1


RULES = "[{name: nan, line: 'loss=(.*)', number: finite, then: fail-jobset}]"


@pytest.mark.parametrize(
    ("rules", "rule", "failed"),
    [(RULES, "nan", True), (RULES, "other", False), ("[", "nan", False), (None, "nan", False)],
)
def test_jobset_fails_by_a_log_rule_when_its_own_annotation_says_so(rules, rule, failed):
    """An agent names the rule only; a name without such a rule restarts the workers."""
    notes = {} if rules is None else {keys.LOG_RULES_ANNOTATION: rules}
    ended = reported_cause(pod("p", 2, cause=f"log-rule=1 {rule}: loss=nan"), 1)
    done = plan(
        jobset(notes=notes),
        {1: 3, 2: 1},
        notes=Observations(newest_epoch_seen=EpochSeen(2, 9.0), reported=ended),
    )
    found = [c for c in done.status.status.conditions if c.type == keys.FAILED_CONDITION]

    assert [(c.reason, "log rule nan: loss=nan" in c.message) for c in found] == (
        [("LogRule", True)] if failed else []
    )


def test_rule_of_the_template_counts_when_the_jobset_has_another_of_the_same_name():
    """The agents have those of the template only."""
    ended = reported_cause(pod("p", 2, cause="log-rule=1 nan: loss=nan"), 1)
    body = jobset(notes={keys.LOG_RULES_ANNOTATION: RULES})
    own = {keys.LOG_RULES_ANNOTATION: RULES.replace("fail-jobset", "restart")}
    (item,) = body.spec.replicated_jobs
    template = {"spec": {**item.template["spec"], "template": {"metadata": {"annotations": own}}}}
    body = evolve(body, spec=evolve(body.spec, replicated_jobs=(evolve(item, template=template),)))
    done = plan(
        body,
        {1: 3, 2: 1},
        notes=Observations(newest_epoch_seen=EpochSeen(2, 9.0), reported=ended),
    )

    assert keys.FAILED_CONDITION not in {c.type for c in done.status.status.conditions}


FAILED = reported_cause(pod("p", 2, cause="exit-code=7"), 1)


def test_report_is_not_shown_when_it_is_of_another_epoch():
    """An annotation of an earlier restart is no cause of this one."""
    done = plan(jobset(3, 2), {3: 3, 4: 1}, notes=Observations(reported=FAILED))

    assert [reason for _, reason, _ in restarting(done)] == ["PodRestarted"]


def test_cause_is_in_the_only_write_when_all_pods_come_together():
    """There is no other write of such a restart."""
    done = plan(
        jobset(), {2: 4}, notes=Observations(newest_epoch_seen=EpochSeen(2, 99.0), reported=FAILED)
    )

    assert done.status.status.restart_history[-1].cause.exit_code == 7
    assert done.measured.begun.cause.kind is FailureKind.WORKER_FAILED


# ---- restarts without progress -------------------------------------------------------------------


def run(of, *steps):
    """Restart the group several times, each time with the step reported for the run before.

    ``None``: a worker has failed without a step. ``LOST``: the pod that reports steps was replaced,
    and workers of others have failed. ``SILENT``: it was replaced, and another manager has not
    observed it.
    """
    digest = 7
    for step in steps:
        epoch = of.status.synced_epoch + 1
        counts = {"progress": (epoch, step)}
        if step in {None, LOST, SILENT}:
            counts = {"ended": 0 if step == SILENT else epoch}
        digest += step == LOST
        counts["digest"] = digest
        of = stored(of, plan(of, {epoch - 1: 3, epoch: 1}, **counts))
        done = plan(of, {epoch: 4}, seconds=1000.0 * epoch, **counts)
        of = stored(of, done)
    return of, done


LOST, SILENT = "lost", "silent"


@pytest.mark.parametrize(
    ("steps", "without", "highest", "fails"),
    [
        pytest.param([10, 20, 30, 40], 0, 40, False, id="new steps each time"),
        pytest.param([10, 10, 5, None], 3, 10, True, id="no new step"),
        pytest.param([10, 10, 5, 11, 11], 1, 11, False, id="a new step in time"),
        pytest.param([None, None, None], 3, None, True, id="never a step"),
        pytest.param([None, None], 2, None, False, id="one restart fewer"),
        pytest.param([-1, -1, -1, -1], 0, None, False, id="only touches"),
        pytest.param([4, -1, -1, -1], 3, 4, True, id="touches after steps"),
        pytest.param([0, 0, 0, 0], 3, 0, True, id="step 0 is a step"),
        pytest.param([LOST, LOST, LOST], 0, None, False, id="its pod is lost each time"),
        pytest.param([SILENT, SILENT, SILENT], 0, None, False, id="no pod reports anything"),
        pytest.param([10, 10, LOST, SILENT, 10, 10], 3, 10, True, id="lost in between"),
    ],
)
def test_jobset_fails_after_the_limit_of_restarts_without_progress(steps, without, highest, fails):
    """In place of the next start; only consecutive ones count."""
    of, done = run(jobset(notes={LIMIT: "3"}, inPlaceRestart={"podsDigest": 7}), *steps)
    record = of.status.in_place_restart

    assert (record.restarts_without_progress, record.highest_step) == (without, highest)
    failed = [c for c in of.status.conditions if c.type == "Failed"]
    assert bool(failed) == fails
    if fails:
        reached = "no step was ever reached" if highest is None else f"step {highest} was"
        assert failed[0].reason == "NoProgress"
        assert "3 restarts in a row without a new step" in failed[0].message
        assert reached in failed[0].message
        assert of.status.synced_epoch == len(steps)
        assert done.status.patch["inPlaceRestart"]["restartsWithoutProgress"] == 3


def test_jobset_does_not_fail_without_the_annotation():
    """Its status says nothing about steps when its workers report none."""
    of, _ = run(jobset(), None, None, None, None)
    record = of.status.in_place_restart

    assert [c for c in of.status.conditions if c.type == "Failed"] == []
    assert (record.highest_step, record.restarts_without_progress) == (None, 0)


def test_digest_differs_when_a_pod_was_replaced():
    """It depends on the pods alone: not on their order, nor on the events a manager has observed."""
    seen = ledger((None, pod("a", 1)), (None, pod("b", 1)))
    before = seen.histogram(GROUP).digest
    seen.pod_changed(pod("b", 1), pod("b", 2, cause="exit-code=1"), 6.0)
    assert seen.histogram(GROUP).digest == before
    seen.pod_changed(pod("a", 1), None, 7.0)
    seen.pod_changed(None, pod("c", None), 8.0)
    seen.pod_changed(pod("c", None), pod("c", 2), 9.0)
    after = ledger((None, pod("c", 2)), (None, pod("b", 2)))

    assert seen.histogram(GROUP).digest == after.histogram(GROUP).digest != before


@pytest.mark.parametrize(("new", "without"), [("c", 0), ("a", 1)])
def test_run_counts_as_one_without_progress_unless_a_pod_was_replaced(new, without):
    """Also if another manager takes over when the new pod has reported its epoch already."""
    of = jobset(0, notes={LIMIT: "3"})
    before = ledger(*[(None, pod(name, 1)) for name in ("a", "b", "o0", "o1")])
    of = stored(of, plan_of(of, before))
    failed = pod("b", 2, cause="exit-code=1")
    after = ledger((None, failed), *[(None, pod(name, 2)) for name in (new, "o0", "o1")])
    done = stored(of, plan_of(of, after))

    assert done.status.synced_epoch == 2
    assert done.status.in_place_restart.restarts_without_progress == without


def test_run_after_a_swap_of_seats_counts_as_one_without_progress():
    """The pod that has taken a seat is no longer new when its first run has ended."""
    spares, without = {keys.IN_PLACE_SPARES_ANNOTATION: "1"}, []
    group = replicated_job("w", parallelism=3)
    of = epoch_plans.jobset(0, items=[group], notes={LIMIT: "3", **spares})
    for epoch, names in enumerate(("abc", "ac", "ac"), 1):
        book = EpochLedger()
        book.job_changed(None, job(notes=spares, spec={"parallelism": 3}))
        book.note_status(GROUP, of.status, 0, 0.0)
        for name in names:
            notes = {keys.RESTART_CAUSE_ANNOTATION: None if epoch == 1 else "exit-code=1", **spares}
            one = epoch_plans.pod(name, epoch, index="abc".index(name), notes=notes)
            book.pod_changed(None, one, 5.0)
        for _ in ("the epoch before is over", "its successor starts"):
            of = stored(of, plan_of(of, book))
        without.append(of.status.in_place_restart.restarts_without_progress)

    assert [one.pod for one in of.status.in_place_restart.taken_seats] == ["c"]
    assert (of.status.synced_epoch, without) == (3, [0, 0, 1])


def test_another_manager_continues_counting():
    """The status has the count; the manager's own memory is empty."""
    record = {"highestStep": 10, "restartsWithoutProgress": 2}
    of = jobset(3, 3, notes={LIMIT: "3"}, inPlaceRestart=record)
    done = plan(of, {4: 4}, progress=(4, 10), memory=EpochState())

    assert "NoProgress" in [c.reason for c in done.status.status.conditions]


def test_restarts_without_progress_are_not_counted_when_the_restart_does_not_count():
    """A group that was restarted on request has not failed."""
    record = {"highestStep": 10, "restartsWithoutProgress": 2, "uncountedEpochs": 1}
    record["lastUncountedEpoch"] = 4
    of = jobset(3, 3, notes={LIMIT: "3"}, inPlaceRestart=record)
    status = plan(of, {4: 4}, progress=(4, 10)).status.status

    assert (status.synced_epoch, status.in_place_restart.restarts_without_progress) == (4, 2)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("41 3.250", FirstProgress(41, 3.25)),
        *[(text, None) for text in (None, "", "41", "41 3", "x 1.000", "41 3.250 ", "41 9e9")],
    ],
)
def test_first_progress_is_parsed_strictly(text, first):
    """A step and seconds with three digits, and nothing else."""
    assert parse_first(text) == first


def test_lost_steps_of_a_restart_are_known_after_the_next_run():
    """From the lowest first step of that run; its time is that of the slowest pod."""
    book = ledger((None, pod("a", 3)), (None, pod("b", 3)))
    for name, text in (("a", "41 2.500"), ("b", "42 3.000")):
        book.pod_changed(pod(name, 3), pod(name, 4, first=text), 5.0)
    notes = book.notes(GROUP)
    assert notes.first == (4, FirstProgress(41, 3.0))

    phases = {"detectionMillis": 100, "deprecationMillis": 20, "gatheringMillis": 300}
    restart = {"kind": "InPlace", "number": 3, "outcome": "Completed", "liftMillis": 30, **phases}
    record = {"highestStep": 57}
    of = jobset(3, 3, inPlaceRestart=record, restartHistory=[restart])
    run = plan(of, {4: 4}, notes=notes).measured.run

    assert (run.lost_steps, run.first_step_s) == (17, 3.45)
    # The run before had another epoch, or followed no restart.
    for other in (jobset(4, 4, inPlaceRestart=record), jobset(1, 1, inPlaceRestart=record)):
        epoch = other.status.synced_epoch + 1
        run = plan(other, {epoch: 4}, notes=notes).measured.run
        assert (run.lost_steps, run.first_step_s) == (None, None)


def plan_after_run(*, first=None, progress=(0, -1), highest=None, ended="opened", missing=0):
    """Return the plan that lifts the barrier 4 s after a run from 100 s to 160 s."""
    memory = plan(jobset(0, 0), {1: 4}, seconds=100.0).memory
    record = {} if highest is None else {"highestStep": highest}
    if missing:
        size = {"job": "test-js-w-0", "seats": 2 - missing, "missing": missing}
        record |= {"pods": 4 - missing, "jobSizes": [size]}
    of = jobset(1, 0, inPlaceRestart=record)
    notes = Observations(newest_epoch_seen=EpochSeen(2, 160.0), first=first)
    if ended == "opened":
        memory = plan(of, {1: 3 - missing, 2: 1}, notes=notes, memory=memory, seconds=160.5).memory
        of = jobset(1, 1, inPlaceRestart=record)
    elif ended == "another manager":
        memory = EpochState(uid=of.metadata.uid)
    pods = {2: 4 - missing}
    return plan(of, pods, notes=notes, memory=memory, progress=progress, seconds=164.0)


def test_run_ends_with_the_decision_when_a_restart_is_requested():
    """No pod has come to the next epoch then."""
    memory = plan(jobset(0, 0), {1: 4}, seconds=100.0).memory
    of, notes = jobset(notes={REQUEST: "now"}), Observations(newest_epoch_seen=EpochSeen(1, 99.0))
    memory = plan(of, {1: 4}, notes=notes, memory=memory, seconds=160.0).memory

    assert (memory.run.ran_from, memory.run.ran_until) == (100.0, 160.0)


RUN = {"first": FirstOfRun(2, FirstProgress(11, 10.0)), "progress": (2, 60)}


@pytest.mark.parametrize("ended", ["opened", "together"])
def test_time_is_accounted_by_activity(ended):
    """A run and the restart after it: starting, repeated steps, new steps, restarting."""
    spent = plan_after_run(**RUN, highest=30, ended=ended).measured.run.spent
    again = 50 * 19 / 49
    assert spent == pytest.approx(
        {"missing": 0, "starting": 10, "repeating": again, "training": 50 - again, "restarting": 4}
    )


def test_share_of_missing_pods_is_no_time_of_training():
    """A run with three of four pods."""
    spent = plan_after_run(**RUN, missing=1).measured.run.spent
    assert spent == pytest.approx(
        {"missing": 15, "starting": 7.5, "repeating": 0, "training": 37.5, "restarting": 4}
    )


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param({"highest": None}, (10, 0, 50), id="the first run"),
        pytest.param({"highest": 99}, (10, 50, 0), id="nothing but steps done before"),
        pytest.param({"progress": (2, 11)}, (10, 0, 50), id="one step"),
        pytest.param({"progress": (2, 11), "highest": 11}, (10, 50, 0), id="one, done before"),
        pytest.param(
            {"first": FirstOfRun(2, FirstProgress(1, 99.0))}, (60, 0, 0), id="a clock that differs"
        ),
    ],
)
def test_all_of_a_run_is_accounted_for(known, expected):
    """Even if it had few steps."""
    spent = plan_after_run(**RUN | known).measured.run.spent
    assert (spent["starting"], spent["repeating"], spent["training"]) == expected


@pytest.mark.parametrize(
    "unknown", [{"first": None}, {"progress": (0, -1)}, {"ended": "another manager"}]
)
def test_time_is_not_accounted_when_too_little_is_known(unknown):
    """No number is better than a wrong one."""
    assert plan_after_run(**RUN | unknown).measured.run.spent == {}


# ---- on request ----------------------------------------------------------------------------------


def test_group_restarts_once_for_each_value_of_the_request():
    """In two writes, and without a cost."""
    of = jobset(max_restarts=0, notes={REQUEST: "now"})
    began = plan(of, {1: 4})
    status = began.status.status
    assert (status.deprecated_epoch, status.in_place_restart.restarts) == (1, 0)
    message = "a restart is asked for: restarting in place from epoch 1 to 2, not counted"
    assert restarting(began) == [("True", "RestartRequested", message)]
    (record,) = status.restart_history
    assert (record.cause.reason, record.counted) == ("RestartRequested", False)

    of = stored(of, began)
    # Another manager, and pods that come one after the other, change nothing.
    assert plan(of, {1: 2, 2: 2}, memory=EpochState()).status is None
    of = stored(of, plan(of, {2: 4}, memory=EpochState()))
    assert (of.status.synced_epoch, of.status.in_place_restart.served_request) == (2, "now")
    assert [c for c in of.status.conditions if c.status == "True"] == []
    assert plan(of, {2: 4}).status is None

    again = evolve(of, metadata=evolve(of.metadata, annotations={REQUEST: "again"}))
    assert plan(again, {2: 4}).status.status.deprecated_epoch == 2


@pytest.mark.parametrize(
    ("of", "epochs", "expected"),
    [
        pytest.param(jobset(0, notes={REQUEST: "x"}), {1: 4}, (1, 0), id="there from the start"),
        pytest.param(jobset(notes={REQUEST: ""}), {1: 4}, None, id="empty"),
        pytest.param(jobset(1, 1, notes={REQUEST: "x"}), {1: 2, 2: 2}, None, id="during a restart"),
        pytest.param(
            jobset(inPlaceRestart={"servedRequest": "x", "pods": 4}), {1: 4}, None, id="removed"
        ),
    ],
)
def test_request_restarts_nothing_when_it_is(of, epochs, expected):
    """Workers that start after the request have served it."""
    status = stored(of, plan(of, epochs)).status
    written = plan(of, epochs).status is not None

    assert ((status.synced_epoch, status.deprecated_epoch) if written else None) == expected
    assert not written or status.in_place_restart.served_request == "x"


def test_failure_counts_when_a_restart_is_requested_at_the_same_time():
    """Requests do not make failures free."""
    of = jobset(notes={REQUEST: "x"})
    of = stored(of, plan(of, {1: 3, 2: 1}, notes=Observations(reported=FAILED)))

    assert of.status.in_place_restart.restarts == 1
    of = stored(of, plan(of, {2: 4}))
    assert of.status.in_place_restart.served_request == "x"


def test_long_request_is_stored_as_its_digest():
    """The status does not grow with the length of the annotation."""
    of = jobset(0, notes={REQUEST: "x" * 200_000})
    of = stored(of, plan(of, {1: 4}))

    assert LONGEST_REQUEST < len(of.status.in_place_restart.served_request) == 71
    assert plan(of, {1: 4}).status is None


# ---- on notice -----------------------------------------------------------------------------------


def disrupted(reason, status="True", **fields):
    """Return a pod with the condition of a disruption."""
    condition = {"type": "DisruptionTarget", "status": status, "reason": reason}
    return pod(conditions=[condition], **fields)


@pytest.mark.parametrize(
    ("after", "sign"),
    [
        (disrupted("EvictionByEvictionAPI"), FailureKind.POD_LEAVING),
        (disrupted("DeletionByTaintManager", deleted=True), FailureKind.POD_LEAVING),
        (disrupted("PreemptionByScheduler", phase="Failed"), FailureKind.POD_LEAVING),
        (disrupted("NodeLost", deleted=True), FailureKind.POD_DELETED),
        (disrupted("TerminationByKubelet", phase="Failed"), FailureKind.POD_LEAVING),
        (disrupted("TerminationByKubelet", phase="Succeeded"), FailureKind.POD_LEAVING),
        (disrupted("DeletionByDeviceTaintManager", deleted=True), FailureKind.POD_LEAVING),
        (disrupted("DeletionByPodGC", deleted=True), FailureKind.POD_DELETED),
        (disrupted("EvictionByEvictionAPI", "False"), None),
        (pod(deleted=True), FailureKind.POD_DELETED),
    ],
    ids=[
        *("eviction", "taint", "preemption", "lost node", "kubelet", "kubelet, saved"),
        *("device", "node gone", "not true", "deletion"),
    ],
)
def test_notices_are_distinguished_from_failures_by_the_condition(after, sign):
    """Its reason says whether the pod was asked to leave or has failed."""
    assert kind_of(pod(), after) is sign


def test_group_restarts_without_a_cost_when_a_pod_is_asked_to_leave():
    """All workers get their grace period immediately, before the pod is gone."""
    after = disrupted("EvictionByEvictionAPI")
    notes = Observations((Failure(FailureKind.POD_LEAVING, 1, pod(), after, 99.0),))
    of = jobset(max_restarts=0)
    began = plan(of, {1: 4}, notes=notes)
    message = (
        "pod 'p' is asked to leave its node (EvictionByEvictionAPI): restarting in place from "
        "epoch 1 to 2, not counted"
    )
    assert restarting(began) == [("True", "PodLeaving", message)]

    of = stored(of, began)
    status = plan(of, {2: 4}, memory=EpochState()).status.status
    assert (status.synced_epoch, status.in_place_restart.restarts) == (2, 0)
