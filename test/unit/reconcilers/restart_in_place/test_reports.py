"""What supervisors report of their workers, restarts without progress, and restarts on request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet, RestartCause
from jobsetpy.reconcilers.restart_in_place.barrier import LONGEST_REQUEST
from jobsetpy.reconcilers.restart_in_place.cause import FailureSignal, reported_cause
from jobsetpy.reconcilers.restart_in_place.failures import Failure, sign_of
from jobsetpy.reconcilers.restart_in_place.ledger import EpochLedger
from jobsetpy.reconcilers.restart_in_place.observed import Histogram, Observations, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.plan import needs_plan, plan_epochs
from jobsetpy.reconcilers.restart_in_place.reports import (
    MAX_STEP,
    FirstProgress,
    ReportedEnd,
    WorkerEnd,
    parse_cause,
    parse_first,
    parse_progress,
)
from jobsetpy.reconcilers.restart_in_place.restart_history import cause_of
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from jobsetpy.reconcilers.rules.membership import AttemptKey
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job

START = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT, REQUEST = keys.MAX_WITHOUT_PROGRESS_ANNOTATION, keys.RESTART_IN_PLACE_ANNOTATION
CAUSE, PROGRESS = keys.RESTART_CAUSE_ANNOTATION, keys.PROGRESS_ANNOTATION


def jobset(synced=1, deprecated=0, *, notes=None, max_restarts=10, **status):
    """A JobSet of one Job with four pods."""
    policy = {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart"}
    epochs = {"syncedEpoch": synced, "deprecatedEpoch": deprecated}
    data = jobset_json(
        replicated_job("w", 1, parallelism=4), status={**epochs, **status}, failurePolicy=policy
    )
    data["metadata"]["annotations"] = notes or {}
    return decoded(JobSet, data)


def job():
    """Its Job."""
    labels = {
        keys.REPLICATED_JOB_NAME: "w",
        keys.JOB_INDEX: "0",
        keys.RESTART_ATTEMPT: "0",
    }
    owner = {
        "apiVersion": f"{keys.GROUP}/v1alpha2",
        "kind": "JobSet",
        "name": "js",
        "uid": "js",
        "controller": True,
    }
    meta = {"name": "j", "namespace": "ns", "uid": "j", "labels": labels}
    return decoded(
        Job, {"metadata": {**meta, "ownerReferences": [owner]}, "spec": {"parallelism": 4}}
    )


def pod(
    name="p",
    epoch=1,
    *,
    cause=None,
    progress=None,
    first=None,
    slow=None,
    conditions=(),
    phase="Running",
    **meta,
):
    """A pod of the Job, as its agent reports it."""
    owner = {"kind": "Job", "name": "j", "uid": "j", "controller": True}
    text = None if epoch is None else str(epoch)
    annotations = {keys.EPOCH_ANNOTATION: text, CAUSE: cause, PROGRESS: progress}
    annotations[keys.FIRST_PROGRESS_ANNOTATION] = first
    annotations[keys.SLOW_PATCH_ANNOTATION] = slow
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "ownerReferences": [owner],
        "annotations": {key: text for key, text in annotations.items() if text is not None},
        **meta,
    }
    status = {"phase": phase, "conditions": list(conditions)}
    return decoded(ChildPod, {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status})


def plan(of, epochs, *, memory=None, notes=None, seconds=100.0, **counts):
    """What one reconcile does."""
    seen = ObservedEpochs(
        jobset=of,
        pods=Histogram(epochs, **counts),
        notes=notes or Observations(),
        job_of=lambda _pod: job(),
    )
    now = Now(START + timedelta(seconds=seconds), seconds)
    return plan_epochs(seen, memory or EpochState(uid="js-uid"), now)


def plan_of(of, book):
    """One reconcile with the pods of a ledger."""
    seen = ObservedEpochs(
        jobset=of,
        pods=book.histogram(GROUP),
        notes=book.notes(GROUP),
        job_of=lambda _pod: job(),
    )
    return plan_epochs(seen, EpochState(uid="js-uid"), Now(START, 100.0))


def stored(of, planned):
    """The JobSet once the plan is carried out."""
    return of if planned.status is None else evolve(of, status=planned.status.status)


def restarting(planned):
    """Reason and message of the condition."""
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
def test_causes(text):
    """Strict: what is not of the two forms says nothing."""
    assert CAUSES[text] == parse_cause(text)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        *[(None, None), ("0", 0), ("1234", 1234), ("touched", -1), (str(MAX_STEP), MAX_STEP)],
        *[(str(MAX_STEP + 1), None), ("-1", None), ("1_0", None), ("", None), ("012", None)],
        ("9" * 1_000_000, None),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_steps(text, step):
    """A number of at most 63 bits, or the word for a touch."""
    assert step == parse_progress(text)


def test_long_reports_are_not_kept():
    """Whoever may write a pod does not fill the cache of the manager."""
    one = pod(cause="x" * 200_000, progress="9" * 200_000)

    assert len(one.metadata.annotations.restart_cause) == 161  # with the worker's last words
    assert len(one.metadata.annotations.progress) == 65


# ---- causes --------------------------------------------------------------------------------------


def ledger(*pods):
    """A ledger that has seen pods come, and its notes."""
    book = EpochLedger()
    book.job_changed(None, job())
    for before, after in pods:
        book.pod_changed(before, after, 5.0)
    return book


GROUP = AttemptKey("ns", "js", "js", 0)


def test_the_first_worker_to_fail_is_noted():
    """Those that come to the epoch after it because it has failed do not replace it."""
    book = ledger(
        (None, pod("a")),
        (None, pod("b")),
        (pod("a"), pod("a", 2, cause="exit-code=137", progress="7")),
        (pod("b"), pod("b", 2, cause="exit-code=1", progress="9")),
    )

    assert ReportedEnd(2, "a", "n1", WorkerEnd("exit-code", 137), 7) == book.notes(GROUP).reported
    assert book.histogram(GROUP).progress == (2, 9)


def test_a_worker_s_last_words_are_in_its_cause():
    """For the condition, the event and the history."""
    words = "RuntimeError: CUDA error: out of memory"
    book = ledger((None, pod("a")), (pod("a"), pod("a", 2, cause=f"exit-code=1 {words}")))
    cause = reported_cause(book.notes(GROUP).reported)

    assert str(cause) == f"pod 'a': its worker ended with exit code 1: {words}"
    assert cause_of(cause).message == words


def test_what_cannot_be_read_is_no_cause():
    """The restart is the same, and its cause is the pod."""
    book = ledger((None, pod("a")), (pod("a"), pod("a", 2, cause="rm -rf", progress="many")))

    assert None is book.notes(GROUP).reported
    assert book.histogram(GROUP).progress == (0, -1)


def test_progress_is_known_when_the_job_comes_after_its_pods():
    """A manager that starts sees them in any order."""
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
            WorkerEnd("exit-code", 137),
            7,
            "WorkerFailed",
            "pod 'p': its worker ended with exit code 137 (SIGKILL)",
            RestartCause(reason="WorkerFailed", pod="p", node="n1", exit_code=137),
            id="killed",
        ),
        pytest.param(
            WorkerEnd("exit-code", 7),
            -1,
            "WorkerFailed",
            "pod 'p': its worker ended with exit code 7",
            RestartCause(reason="WorkerFailed", pod="p", node="n1", exit_code=7),
            id="failed",
        ),
        pytest.param(
            WorkerEnd("no-progress", 300),
            1234,
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
            WorkerEnd("no-progress", 47, "the limit follows from the longest step, 9.4 s"),
            3,
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
    ],
)
def test_what_a_supervisor_says_is_shown(end, step, reason, text, cause):
    """Condition, event, history and metric name how the worker ended, and for which pod."""
    notes = Observations(opened=(2, 99.0), reported=ReportedEnd(2, "p", "n1", end, step))
    done = plan(jobset(), {1: 3, 2: 1}, notes=notes)

    message = f"{text}: restarting in place from epoch 1 to 2, 3 pods to follow"
    assert [("True", reason, message)] == restarting(done)
    assert [message] == [event.message for event in done.status.events]
    assert cause == done.status.status.restart_history[-1].cause
    assert reason == done.begun.cause.condition_reason
    assert done.status.status.in_place_restart.restarts == 1


def test_what_is_said_of_another_epoch_is_not_shown():
    """An annotation that was left from an earlier restart is no cause of this one."""
    notes = Observations(reported=ReportedEnd(2, "p", "n1", WorkerEnd("exit-code", 7), -1))
    done = plan(jobset(3, 2), {3: 3, 4: 1}, notes=notes)

    assert [reason for _, reason, _ in restarting(done)] == ["PodRestarted"]


def test_all_come_at_once():
    """The one write of such a restart has the cause as well."""
    notes = Observations(
        opened=(2, 99.0), reported=ReportedEnd(2, "p", "n1", WorkerEnd("exit-code", 7), -1)
    )
    done = plan(jobset(), {2: 4}, notes=notes)

    assert done.status.status.restart_history[-1].cause.exit_code == 7
    assert FailureSignal.WORKER_FAILED is done.begun.cause.sign


# ---- restarts without progress -------------------------------------------------------------------


def run(of, *steps):
    """Restart after restart, each with the step that was reported for the run before it.

    ``None``: a worker has failed without one. ``LOST``: the pod that reports steps was replaced, and
    the workers of others have failed. ``SILENT``: it was, and another manager sees nothing of it.
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
        pytest.param([10, 10, 5, None], 3, 10, True, id="none that is new"),
        pytest.param([10, 10, 5, 11, 11], 1, 11, False, id="one in time"),
        pytest.param([None, None, None], 3, None, True, id="never a step"),
        pytest.param([None, None], 2, None, False, id="one restart fewer"),
        pytest.param([-1, -1, -1, -1], 0, None, False, id="only touches"),
        pytest.param([4, -1, -1, -1], 3, 4, True, id="touches after steps"),
        pytest.param([0, 0, 0, 0], 3, 0, True, id="the first step is one"),
        pytest.param([LOST, LOST, LOST], 0, None, False, id="its pod is lost each time"),
        pytest.param([SILENT, SILENT, SILENT], 0, None, False, id="no pod reports anything"),
        pytest.param([10, 10, LOST, SILENT, 10, 10], 3, 10, True, id="lost in between"),
    ],
)
def test_restarts_without_progress(steps, without, highest, fails):
    """So many in a row end the JobSet in place of the next start, and no others do."""
    of, done = run(jobset(notes={LIMIT: "3"}, inPlaceRestart={"podsDigest": 7}), *steps)
    record = of.status.in_place_restart

    assert (without, highest) == (record.restarts_without_progress, record.highest_step)
    failed = [c for c in of.status.conditions if c.type == "Failed"]
    assert fails == bool(failed)
    if fails:
        reached = "no step was ever reached" if highest is None else f"step {highest} was"
        assert failed[0].reason == "NoProgress"
        assert "3 restarts in a row without a new step" in failed[0].message
        assert reached in failed[0].message
        assert len(steps) == of.status.synced_epoch
        assert done.status.patch["inPlaceRestart"]["restartsWithoutProgress"] == 3


def test_without_the_annotation_nothing_fails():
    """And a JobSet whose workers tell of no steps has nothing about them in its status."""
    of, _ = run(jobset(), None, None, None, None)
    record = of.status.in_place_restart

    assert [c for c in of.status.conditions if c.type == "Failed"] == []
    assert (record.highest_step, record.restarts_without_progress) == (None, 0)


def test_digest_differs_when_a_pod_was_replaced():
    """It depends on the pods alone: not on their order, nor on what a manager has seen of them."""
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
    others = [f"o{at}" for at in range(2)]
    before = ledger(*[(None, pod(name, 1)) for name in ("a", "b", *others)])
    of = stored(jobset(0, notes={LIMIT: "3"}), plan_of(jobset(0, notes={LIMIT: "3"}), before))
    failed = pod("b", 2, cause="exit-code=1")
    after = ledger((None, failed), *[(None, pod(name, 2)) for name in (new, *others)])
    done = stored(of, plan_of(of, after))

    assert done.status.synced_epoch == 2
    assert done.status.in_place_restart.restarts_without_progress == without


@pytest.mark.parametrize(("epoch", "waits"), [(1, True), (2, False)])
def test_pod_waits_for_a_slow_server_only_at_the_epoch_that_it_says(epoch, waits):
    """Reports of an earlier epoch end without a write."""
    book = ledger((None, pod("a", epoch, slow="1 6")))
    assert book.histogram(GROUP).slow == waits
    book.pod_changed(pod("a", epoch, slow="1 6"), pod("a", epoch), 6.0)

    assert book.histogram(GROUP).slow == 0


def test_condition_says_that_workers_wait_for_a_slow_server_until_none_does():
    """By the pods alone, with one write for all of them; a new manager sees the same."""
    of = jobset(1, 0, inPlaceRestart={"pods": 4})
    slow, well = Histogram({1: 4}, slow=4), Histogram({1: 4})
    assert needs_plan(of, slow, Observations(), EpochState())
    told = stored(of, plan(of, {1: 4}, slow=4))
    (found,) = [c for c in told.status.conditions if c.type == keys.BARRIER_STALLED_CONDITION]
    assert (found.status, found.reason) == ("True", keys.API_SERVER_SLOW_REASON)
    assert "lost-node deadline" in found.message
    assert not needs_plan(told, Histogram({1: 4}, slow=1), Observations(), EpochState())
    assert plan(told, {1: 4}, slow=1).status is None
    assert needs_plan(told, well, Observations(), EpochState())
    over = stored(told, plan(told, {1: 4}))
    (found,) = [c for c in over.status.conditions if c.type == keys.BARRIER_STALLED_CONDITION]

    assert found.status == "False"
    assert not needs_plan(over, well, Observations(), EpochState())


def test_another_manager_continues_counting():
    """What it needs is in the status; its own memory is empty."""
    record = {"highestStep": 10, "restartsWithoutProgress": 2}
    of = jobset(3, 3, notes={LIMIT: "3"}, inPlaceRestart=record)
    done = plan(of, {4: 4}, progress=(4, 10), memory=EpochState())

    assert "NoProgress" in [c.reason for c in done.status.status.conditions]


def test_restarts_that_do_not_count_are_none():
    """A group that was restarted on request has not failed."""
    record = {"highestStep": 10, "restartsWithoutProgress": 2, "uncountedEpochs": 1}
    record["lastUncountedEpoch"] = 4
    of = jobset(3, 3, notes={LIMIT: "3"}, inPlaceRestart=record)
    done = plan(of, {4: 4}, progress=(4, 10))

    assert (
        done.status.status.synced_epoch,
        done.status.status.in_place_restart.restarts_without_progress,
    ) == (4, 2)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("41 3.250", FirstProgress(41, 3.25)),
        *[(text, None) for text in (None, "", "41", "41 3", "x 1.000", "41 3.250 ", "41 9e9")],
    ],
)
def test_first_progress(text, first):
    """A step and seconds with three digits, and nothing else."""
    assert first == parse_first(text)


def test_what_a_restart_has_cost_in_steps():
    """The run after it tells, when it is over itself: its lowest first step, its longest time."""
    book = ledger((None, pod("a", 3)), (None, pod("b", 3)))
    for name, text in (("a", "41 2.500"), ("b", "42 3.000")):
        book.pod_changed(pod(name, 3), pod(name, 4, first=text), 5.0)
    notes = book.notes(GROUP)
    assert (4, FirstProgress(41, 3.0)) == notes.first

    phases = {"detectionMillis": 100, "deprecationMillis": 20, "gatheringMillis": 300}
    restart = {"kind": "InPlace", "number": 3, "outcome": "Completed", "liftMillis": 30, **phases}
    record = {"highestStep": 57}
    of = jobset(3, 3, inPlaceRestart=record, restartHistory=[restart])
    run = plan(of, {4: 4}, notes=notes).run

    assert (run.lost_steps, run.first_step_s) == (17, 3.45)
    # The run before had another epoch, or followed no restart.
    for other in (jobset(4, 4, inPlaceRestart=record), jobset(1, 1, inPlaceRestart=record)):
        epoch = other.status.synced_epoch + 1
        run = plan(other, {epoch: 4}, notes=notes).run
        assert (run.lost_steps, run.first_step_s) == (None, None)


def a_run(*, first=None, progress=(0, -1), highest=None, ended="opened"):
    """The plan that lifts the barrier after a run from 100 s to 160 s; 4 s later."""
    memory = plan(jobset(0, 0), {1: 4}, seconds=100.0).memory
    record = {} if highest is None else {"highestStep": highest}
    of = jobset(1, 0, inPlaceRestart=record)
    notes = Observations(opened=(2, 160.0), first=first)
    if ended == "opened":
        memory = plan(of, {1: 3, 2: 1}, notes=notes, memory=memory, seconds=160.5).memory
        of = jobset(1, 1, inPlaceRestart=record)
    elif ended == "another manager":
        memory = EpochState(uid=of.metadata.uid)
    return plan(of, {2: 4}, notes=notes, memory=memory, progress=progress, seconds=164.0)


def test_the_time_of_a_run_that_was_ended_on_request():
    """It ended when the restart was decided on: no pod had come to the next epoch."""
    memory = plan(jobset(0, 0), {1: 4}, seconds=100.0).memory
    of, notes = jobset(notes={REQUEST: "now"}), Observations(opened=(1, 99.0))
    memory = plan(of, {1: 4}, notes=notes, memory=memory, seconds=160.0).memory

    assert (memory.ran_from, memory.ran_until) == (100.0, 160.0)


@pytest.mark.parametrize("ended", ["opened", "at once"])
def test_what_the_time_went_into(ended):
    """A run and the restart after it: starting, steps done again, new steps, restarting."""
    first = (2, FirstProgress(11, 10.0))
    spent = a_run(first=first, progress=(2, 60), highest=30, ended=ended).run.spent
    again = 50 * 19 / 49
    assert spent == pytest.approx(
        {"starting": 10, "repeating": again, "training": 50 - again, "restarting": 4}
    )


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param({"highest": None}, (10, 0, 50), id="the first run"),
        pytest.param({"highest": 99}, (10, 50, 0), id="nothing but steps done before"),
        pytest.param({"progress": (2, 11)}, (10, 0, 50), id="one step"),
        pytest.param({"progress": (2, 11), "highest": 11}, (10, 50, 0), id="one, done before"),
        pytest.param({"first": (2, FirstProgress(1, 99.0))}, (60, 0, 0), id="a clock that differs"),
    ],
)
def test_what_a_run_was(known, expected):
    """It is all of the run, however few its steps."""
    given = {"first": (2, FirstProgress(11, 10.0)), "progress": (2, 60)} | known
    spent = a_run(**given).run.spent
    assert expected == (spent["starting"], spent["repeating"], spent["training"])


@pytest.mark.parametrize(
    "unknown", [{"first": None}, {"progress": (0, -1)}, {"ended": "another manager"}]
)
def test_a_run_of_which_too_little_is_known(unknown):
    """Nothing is counted rather than something that is not so."""
    given = {"first": (2, FirstProgress(11, 10.0)), "progress": (2, 60)} | unknown
    assert a_run(**given).run.spent == {}


# ---- on request ----------------------------------------------------------------------------------


def test_a_restart_on_request():
    """Once for each value, in two writes, and without a cost."""
    of = jobset(max_restarts=0, notes={REQUEST: "now"})
    began = plan(of, {1: 4})
    assert (
        began.status.status.deprecated_epoch,
        began.status.status.in_place_restart.restarts,
    ) == (1, 0)
    message = "a restart is asked for: restarting in place from epoch 1 to 2, not counted"
    assert [("True", "RestartRequested", message)] == restarting(began)
    (record,) = began.status.status.restart_history
    assert (record.cause.reason, record.counted) == ("RestartRequested", False)

    of = stored(of, began)
    # Another manager, and pods that come one after the other, are no matter.
    assert None is plan(of, {1: 2, 2: 2}, memory=EpochState()).status
    ended = plan(of, {2: 4}, memory=EpochState())
    of = stored(of, ended)
    assert (of.status.synced_epoch, of.status.in_place_restart.served_request) == (2, "now")
    assert [c for c in of.status.conditions if c.status == "True"] == []
    assert None is plan(of, {2: 4}).status

    again = evolve(of, metadata=evolve(of.metadata, annotations={REQUEST: "again"}))
    assert plan(again, {2: 4}).status.status.deprecated_epoch == 2


@pytest.mark.parametrize(
    ("of", "epochs", "expected"),
    [
        pytest.param(jobset(0, notes={REQUEST: "x"}), {1: 4}, (1, 0), id="there from the start"),
        pytest.param(jobset(notes={REQUEST: ""}), {1: 4}, None, id="empty"),
        pytest.param(jobset(1, 1, notes={REQUEST: "x"}), {1: 2, 2: 2}, None, id="during a restart"),
        pytest.param(
            jobset(inPlaceRestart={"servedRequest": "x", "pods": 4}), {1: 4}, None, id="taken back"
        ),
    ],
)
def test_requests_that_ask_for_no_restart_now(of, epochs, expected):
    """Workers that start after the request have served it."""
    done = plan(of, epochs)
    epochs_then = None
    if done.status is not None:
        epochs_then = (done.status.status.synced_epoch, done.status.status.deprecated_epoch)
        assert done.status.status.in_place_restart.served_request == "x"

    assert expected == epochs_then


def test_a_failure_while_a_restart_is_asked_for_counts():
    """Asking for restarts does not make failures free."""
    of = jobset(notes={REQUEST: "x"})
    notes = Observations(reported=ReportedEnd(2, "p", "n1", WorkerEnd("exit-code", 7), -1))
    began = plan(of, {1: 3, 2: 1}, notes=notes)

    assert began.status.status.in_place_restart.restarts == 1
    ended = plan(stored(of, began), {2: 4})
    assert ended.status.status.in_place_restart.served_request == "x"


def test_a_long_request_is_stored_as_its_digest():
    """The status does not grow with what somebody writes into an annotation."""
    of = jobset(0, notes={REQUEST: "x" * 200_000})
    served = plan(of, {1: 4}).status.status.in_place_restart.served_request

    assert LONGEST_REQUEST < len(served) == 71
    assert None is plan(stored(of, plan(of, {1: 4})), {1: 4}).status


# ---- on notice -----------------------------------------------------------------------------------


def disruption(reason, status="True"):
    """A pod's condition."""
    return {"type": "DisruptionTarget", "status": status, "reason": reason}


GONE = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("after", "sign"),
    [
        (pod(conditions=[disruption("EvictionByEvictionAPI")]), FailureSignal.POD_LEAVING),
        (
            pod(conditions=[disruption("DeletionByTaintManager")], deletionTimestamp=GONE),
            FailureSignal.POD_LEAVING,
        ),
        (
            pod(conditions=[disruption("PreemptionByScheduler")], phase="Failed"),
            FailureSignal.POD_LEAVING,
        ),
        (
            pod(conditions=[disruption("NodeLost")], deletionTimestamp=GONE),
            FailureSignal.POD_DELETED,
        ),
        (
            pod(conditions=[disruption("TerminationByKubelet")], phase="Failed"),
            FailureSignal.POD_FAILED,
        ),
        (pod(conditions=[disruption("EvictionByEvictionAPI", "False")]), None),
        (pod(deletionTimestamp=GONE), FailureSignal.POD_DELETED),
    ],
    ids=["eviction", "taint", "preemption", "lost node", "kubelet", "not true", "deletion"],
)
def test_pods_that_are_asked_to_leave(after, sign):
    """Notices are told from failures by the condition that comes with them."""
    assert sign is sign_of(pod(), after)


def test_a_pod_that_is_asked_to_leave_restarts_its_group_without_a_cost():
    """All get their grace at once, before the pod is gone, and nothing is counted."""
    after = pod(conditions=[disruption("EvictionByEvictionAPI")])
    notes = Observations((Failure(FailureSignal.POD_LEAVING, 1, pod(), after, 99.0),))
    of = jobset(max_restarts=0)
    began = plan(of, {1: 4}, notes=notes)
    assert restarting(began) == [
        (
            "True",
            "PodLeaving",
            (
                "pod 'p' is asked to leave its node (EvictionByEvictionAPI): restarting in place from "
                "epoch 1 to 2, not counted"
            ),
        )
    ]

    of = stored(of, began)
    ended = plan(of, {2: 4}, memory=EpochState())
    assert (
        ended.status.status.synced_epoch,
        ended.status.status.in_place_restart.restarts,
    ) == (2, 0)
