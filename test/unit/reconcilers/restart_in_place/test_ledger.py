"""Counting epochs as pods and Jobs change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, InPlaceRestartStatus, JobSetStatus
from jobsetpy.reconcilers.restart_in_place.attempt_notes import MAX_FAILURES
from jobsetpy.reconcilers.restart_in_place.ledger import EpochLedger
from jobsetpy.reconcilers.restart_in_place.observed import Observations
from jobsetpy.reconcilers.rules.membership import AttemptKey
from jobsetpy.testing.jobsets import decoded

GROUP = AttemptKey("ns", "js-name", "js", 0)


def pod(name="p", epoch=None, *, owner="job", phase="Running", deleting=False, restarts=0, **more):
    """A pod of a Job."""
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": {}}
    if more.get("tracked", True):
        meta["finalizers"] = [keys.JOB_TRACKING_FINALIZER]
    if "index" in more:
        meta["annotations"][keys.COMPLETION_INDEX_ANNOTATION] = str(more["index"])
    if epoch is not None:
        meta["annotations"][keys.EPOCH_ANNOTATION] = str(epoch)
    if owner is not None:
        meta["ownerReferences"] = [{"kind": "Job", "uid": owner, "controller": True}]
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"phase": phase}
    if restarts:
        ended = {"terminated": {"exitCode": more.get("code", 1)}}
        one = {"name": "c", "restartCount": restarts, "lastState": ended}
        status["containerStatuses"] = [one]
    return decoded(ChildPod, {"metadata": meta, "status": status})


def job(
    uid="job", *, owner="js", attempt="0", succeeded=0, kind="JobSet", group=keys.GROUP, **status
):
    """A Job of a JobSet."""
    reference = {"apiVersion": f"{group}/v1alpha2", "kind": kind, "uid": owner, "controller": True,
                 "name": "js-name"}  # fmt: skip
    return decoded(
        Job,
        {
            "metadata": {
                "name": uid,
                "namespace": "ns",
                "uid": uid,
                "labels": {keys.RESTART_ATTEMPT: attempt},
                "ownerReferences": [reference],
            },
            "status": {"succeeded": succeeded, **status},
        },
    )


def ledger(*jobs):
    """A ledger that knows some Jobs."""
    out = EpochLedger()
    for each in jobs or (job(),):
        out.job_changed(None, each)
    return out


def counts(book, group=GROUP):
    """Epochs and number of succeeded pods."""
    histogram = book.histogram(group)
    return dict(histogram.epochs), histogram.succeeded


def test_pods_are_counted_by_epoch():
    """A pod counts at its epoch, moves with it, and leaves when it goes."""
    book = ledger()

    assert book.pod_changed(None, pod()) is None
    assert book.pod_changed(pod(), pod(epoch=1)) == GROUP
    assert book.pod_changed(None, pod("q", 1)) == GROUP
    assert counts(book) == ({1: 2}, 0)
    assert book.pod_changed(pod(epoch=1), pod(epoch=2)) == GROUP
    assert counts(book) == ({1: 1, 2: 1}, 0)
    assert book.pod_changed(pod(epoch=2), None) == GROUP
    assert counts(book) == ({1: 1}, 0)


def test_other_changes_of_a_pod_cost_nothing():
    """A change that leaves the epoch alone is no change of the group."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1, phase="Pending"))

    assert book.pod_changed(pod(epoch=1, phase="Pending"), pod(epoch=1)) is None


def test_a_terminating_pod_counts_until_it_is_gone():
    """Its replacement is made only then; until then the group is not complete at a new epoch."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1))

    assert book.pod_changed(pod(epoch=1), pod(epoch=1, deleting=True)) == GROUP
    assert counts(book) == ({1: 1}, 0)
    assert book.histogram(GROUP).leaving == 1


def test_failed_pods_do_not_count():
    """A pod that fails leaves the group."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1))
    book.pod_changed(pod(epoch=1), pod(epoch=1, phase="Failed"))

    assert counts(book) == ({}, 0)


def test_succeeded_pods_are_counted_apart():
    """A pod that succeeds leaves the epochs and lowers the number expected."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1))
    book.pod_changed(pod(epoch=1), pod(epoch=1, phase="Succeeded"))

    assert counts(book) == ({}, 1)


def test_succeeded_pods_that_are_gone_are_known_from_their_job():
    """Deleting a succeeded pod does not bring it back into the group."""
    book = ledger()
    done = pod(epoch=1, phase="Succeeded")
    book.pod_changed(None, done)
    assert book.job_changed(job(), job(succeeded=1)) == GROUP
    book.pod_changed(done, None)

    assert counts(book) == ({}, 1)


def test_pod_that_was_asked_to_leave_completes_nothing_when_it_ends_with_0():
    """Its Job alone can tell; a pod whose finalizer was taken off is replaced."""
    book = ledger()
    for name, tracked, deleting in (("p", True, True), ("q", False, True), ("r", False, False)):
        before = pod(name, 1, deleting=deleting)
        book.pod_changed(None, before)
        after = pod(name, 1, phase="Succeeded", deleting=deleting, tracked=tracked)
        book.pod_changed(before, after)

    assert counts(book) == ({}, 0)


def test_succeeded_pod_counts_once_while_its_job_counts_it():
    """Its index is in the Job's status before the finalizer goes, and stays there."""
    book = ledger()
    done = [pod(f"p{index}", 1, phase="Succeeded", index=index) for index in range(3)]
    for each in done:
        book.pod_changed(None, each)
    seen = [counts(book)]
    first = job(succeeded=2, completedIndexes="0,1")
    book.job_changed(job(), first)
    seen.append(counts(book))
    for index in (0, 1):
        untracked = pod(f"p{index}", 1, phase="Succeeded", index=index, tracked=False)
        book.pod_changed(done[index], untracked)
        book.pod_changed(untracked, None)
    seen.append(counts(book))
    book.job_changed(first, job(succeeded=3, completedIndexes="0-2"))

    assert [*seen, counts(book)] == [({}, 3)] * 4


def test_succeeded_pod_of_a_job_without_indexes_counts_once():
    """Such a Job notes UIDs before it takes the finalizers off, and counts the pods after it."""
    book = ledger()
    done = pod("p", 1, phase="Succeeded")
    book.pod_changed(None, done)
    noted = job(uncountedTerminatedPods={"succeeded": ["uid-p"]})
    book.job_changed(job(), noted)
    seen = [counts(book)]
    untracked = pod("p", 1, phase="Succeeded", tracked=False)
    book.pod_changed(done, untracked)
    seen.append(counts(book))
    book.job_changed(noted, job(succeeded=1))
    seen.append(counts(book))
    book.pod_changed(untracked, None)

    assert [*seen, counts(book)] == [({}, 1)] * 4


def test_a_pod_without_a_controller_does_not_count():
    """Labels alone make no member."""
    book = ledger()

    assert book.pod_changed(None, pod(epoch=9, owner=None)) is None
    assert counts(book) == ({}, 0)


def test_a_pod_of_an_unknown_job_does_not_count():
    """A made-up controller UID leads nowhere."""
    book = ledger()

    assert book.pod_changed(None, pod(epoch=9, owner="made-up")) is None
    assert counts(book) == ({}, 0)


def test_pods_may_be_seen_before_their_job():
    """They count from the moment their Job is known."""
    book = EpochLedger()
    book.pod_changed(None, pod(epoch=1))
    book.pod_changed(None, pod("q", "x"))
    assert counts(book) == ({}, 0)

    assert book.job_changed(None, job()) == GROUP
    assert counts(book) == ({1: 1}, 0)
    assert list(book.invalid(GROUP)) == ["uid-q"]


def test_pods_leave_with_their_job():
    """Orphans of a deleted Job count no more."""
    book = ledger(job(), job("other"))
    book.pod_changed(None, pod(epoch=1))
    book.pod_changed(None, pod("q", "x"))
    book.pod_changed(None, pod("r", 1, owner="other"))

    assert book.job_changed(job(), None) == GROUP
    assert counts(book) == ({1: 1}, 0)
    assert book.invalid(GROUP) == {}


def test_attempts_are_counted_apart():
    """Pods of the attempt before do not mix with those of the present one."""
    book = ledger(job("old"), job("new", attempt="1"))
    book.pod_changed(None, pod("p", 1, owner="old"))
    book.pod_changed(None, pod("q", 2, owner="new"))

    assert counts(book) == ({1: 1}, 0)
    assert counts(book, AttemptKey("ns", "js-name", "js", 1)) == ({2: 1}, 0)


def test_jobsets_of_one_name_are_distinguished_by_uid():
    """A JobSet recreated under the same name starts from nothing."""
    book = ledger(job("old", owner="js-old"), job("new", owner="js-new"))
    book.pod_changed(None, pod(epoch=5, owner="old"))

    assert counts(book, AttemptKey("ns", "js-name", "js-new", 0)) == ({}, 0)


def test_a_replaced_pod_of_the_same_name():
    """A pod seen again with another Job as controller moves to that Job's group."""
    book = ledger(job(), job("two", attempt="1"))
    book.pod_changed(None, pod(epoch=1))

    assert AttemptKey("ns", "js-name", "js", 1) == book.pod_changed(
        pod(epoch=1), pod(epoch=1, owner="two")
    )
    assert counts(book) == ({}, 0)
    assert counts(book, AttemptKey("ns", "js-name", "js", 1)) == ({1: 1}, 0)


def test_a_job_whose_attempt_is_edited_moves():
    """The pods go with their Job."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1))

    assert AttemptKey("ns", "js-name", "js", 3) == book.job_changed(job(), job(attempt="3"))
    assert counts(book) == ({}, 0)
    assert counts(book, AttemptKey("ns", "js-name", "js", 3)) == ({1: 1}, 0)


def test_a_job_with_an_unreadable_attempt_has_no_group():
    """Its pods count nowhere until it is readable again."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1))

    assert book.job_changed(job(), job(attempt="x")) == GROUP
    assert counts(book) == ({}, 0)
    assert book.job_changed(job(attempt="x"), job()) == GROUP
    assert counts(book) == ({1: 1}, 0)


def test_jobs_of_other_controllers_have_no_group():
    """Only Jobs whose controller is a JobSet matter."""
    book = EpochLedger()

    assert book.job_changed(None, job(kind="CronJob", group="batch")) is None
    assert book.job_changed(None, job("x", group="example.com")) is None


def test_other_changes_of_a_job_cost_nothing():
    """Only its attempt and its number of succeeded pods matter."""
    book = ledger()

    assert book.job_changed(job(), job()) is None


def test_invalid_annotations_are_named():
    """A pod with an unusable annotation counts nowhere and is known by name and text."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1))
    assert book.pod_changed(None, pod("q", "two")) == GROUP
    assert book.pod_changed(pod("q", "two"), pod("q", "three")) == GROUP
    assert book.pod_changed(pod("q", "three"), pod("q", "three")) is None

    (bad,) = book.invalid(GROUP).values()
    assert (bad.pod_name, bad.pod_uid, bad.text) == ("q", "uid-q", "three")
    assert counts(book) == ({1: 1}, 0)

    book.pod_changed(pod("q", "three"), pod("q", 1))
    assert counts(book) == ({1: 2}, 0)
    assert book.invalid(GROUP) == {}


def test_the_first_pod_at_an_epoch_is_known():
    """For people who ask who restarted first; not of pods that came before their Job."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1))
    book.pod_changed(None, pod("q", 1))
    book.pod_changed(pod("q", 1), pod("q", 2))
    book.pod_changed(pod(epoch=1), pod(epoch=2))

    assert book.histogram(GROUP).first == {2: "q"}


def test_restart_counts():
    """Of pods that are alive, with an epoch or without; 0 is not counted."""
    book = ledger()
    changes = [
        (None, pod(restarts=0), {}),
        (pod(), pod(restarts=2), {2: 1}),
        (None, pod("q", 1, restarts=2), {2: 2}),
        (pod(restarts=2), pod(epoch=1, restarts=5), {2: 1, 5: 1}),
        (pod("q", 1, restarts=2), pod("q", 1, restarts=2, phase="Failed"), {5: 1}),
        (pod(epoch=1, restarts=5), pod(epoch=1, restarts=5, phase="Succeeded"), {}),
    ]
    for old, new, expected in changes:
        book.pod_changed(old, new)
        assert expected == book.histogram(GROUP).restarts


def test_a_restart_is_a_change():
    """The group is named, so that somebody looks at it; also for a pod without an epoch."""
    book = ledger()
    book.pod_changed(None, pod())

    assert book.pod_changed(pod(), pod(restarts=1)) == GROUP
    assert book.pod_changed(pod(restarts=1), pod(restarts=1)) is None


def test_restart_counts_move_with_the_job():
    """They come with the Job, go with it, and go from one Job to another with their pod."""
    book = EpochLedger()
    book.pod_changed(None, pod(restarts=3))
    assert book.histogram(GROUP).restarts == {}
    book.job_changed(None, job())
    assert book.histogram(GROUP).restarts == {3: 1}

    book.job_changed(None, job("two", attempt="1"))
    book.pod_changed(pod(restarts=3), pod(restarts=3, owner="two"))
    assert book.histogram(GROUP).restarts == {}
    assert book.histogram(AttemptKey("ns", "js-name", "js", 1)).restarts == {3: 1}
    book.job_changed(job("two", attempt="1"), None)
    assert book.histogram(AttemptKey("ns", "js-name", "js", 1)).restarts == {}


def test_the_group_of_a_pod():
    """Known by its Job's UID alone."""
    book = ledger()

    assert book.group_of_pod(pod()) == GROUP
    assert book.group_of_pod(pod(owner="other")) is None


def test_nothing_is_left_when_all_is_gone():
    """The ledger holds nothing of JobSets that no longer exist."""
    book = ledger(job(succeeded=2))
    book.pod_changed(None, pod(epoch=1))
    book.pod_changed(None, pod("q", "x"))
    book.pod_changed(None, pod("r", 1, phase="Succeeded"))
    book.pod_changed(None, pod("s", restarts=1))
    book.job_changed(job(succeeded=2), None)
    gone = (pod(epoch=1), pod("q", "x"), pod("r", 1, phase="Succeeded"), pod("s", restarts=1))
    for each in gone:
        book.pod_changed(each, None)

    assert len(book) == 0


def status(synced, deprecated, **record):
    """A JobSet's status."""
    return JobSetStatus(
        synced_epoch=synced,
        deprecated_epoch=deprecated,
        in_place_restart=InPlaceRestartStatus(**record),
    )


class TestCrashes:
    """A container that fails again and again while the barrier is closed."""

    def book(self, synced=0, deprecated=0, **record):
        """A ledger that knows where the group stands."""
        out = ledger()
        out.note_status(GROUP, status(synced, deprecated, **record), 0, 0.0)
        return out

    def test_pods_that_are_gone(self):
        """Their crashes are forgotten, whoever leads: pods of new names come for ever."""
        book = self.book()
        for number in range(100):
            self.crash(book, 0, 1, 2, name=f"p-{number}")
            book.pod_changed(pod(f"p-{number}", 1, restarts=2, code=1), None)

        assert not book._attempts[GROUP].crashed

    def crash(self, book, *counts, name="p", code=1, epoch=1):
        """A container is restarted, so often after each other; the worst crash of the group."""
        for before, after in pairwise(counts):
            old = pod(name, epoch, restarts=before, code=code)
            book.pod_changed(old, pod(name, epoch, restarts=after, code=code))
        return [crash[:3] for crash in book.histogram(GROUP).crashes.values()]

    def test_each_failure_counts(self):
        """Before the first start every one does, and the worst pod is named."""
        book = self.book()

        assert self.crash(book, 0, 1, 2, 3) == [(3, "p", "c")]
        assert self.crash(book, 0, 1, 2, name="q") == [(3, "p", "c")]

    def test_restarts_that_ended_with_0_do_not(self):
        """Neither then nor when the container fails at last."""
        book = self.book()

        assert self.crash(book, *range(21), code=0) == []
        assert self.crash(book, 20, 21) == [(1, "p", "c")]

    def test_several_at_once_are_one(self):
        """Only the latest of them is known to be a failure."""
        assert self.crash(self.book(), 0, 9) == [(1, "p", "c")]

    def test_the_restart_of_the_group_is_not_counted(self):
        """It restarts each container once; a manager that has not seen it knows by the count."""
        book = self.book(1, 1, container_restarts=4)

        assert self.crash(book, 4, 5) == []
        assert self.crash(book, 5, 6, 7) == [(2, "p", "c")]
        assert self.crash(book, 1, 2, 3, name="q") == [(2, "p", "c")]
        assert self.crash(self.book(1, 1, container_restarts=4), 5, 6, name="r") == [(1, "r", "c")]

    def test_while_workers_run_nothing_counts(self):
        """Whatever fails then opens an epoch or is nobody's business."""
        book = self.book(1, 0)
        book.pod_changed(None, pod("other", 1))

        assert self.crash(book, 0, 1, 2, 3) == []

    def test_a_new_epoch_resets_the_count(self):
        """Each restart of the group has its own count."""
        book = self.book()
        self.crash(book, 0, 1, 2)
        book.note_status(GROUP, status(1, 0), 0, 0.0)

        assert book.histogram(GROUP).crashes == {}

    def test_another_manager_continues_counting(self):
        """What the one before counted is in the JobSet's status."""
        record = {"crashes": 2, "crashing_pod": "p", "crashing_container": "c"}
        book = self.book(1, 1, container_restarts=1, **record)

        assert self.crash(book, 3, 4) == [(3, "p", "c")]

    def test_within_a_window(self):
        """The worst is who crashed most of late, not who once did."""
        book = ledger()
        book.note_status(GROUP, status(0, 0), 0, 0.0, 3600)
        start = datetime(2026, 1, 1, tzinfo=UTC)

        def crash(name, count, minutes):
            old = pod(name, restarts=count - 1)
            at = start + timedelta(minutes=minutes)
            book.pod_changed(old, pod(name, restarts=count), 0.0, lambda: at)
            ((times, worst, _, when),) = book.histogram(GROUP).crashes.values()
            assert len(when) == times
            return times, worst

        assert [crash("p", n + 1, 10 * n) for n in range(3)] == [(1, "p"), (2, "p"), (3, "p")]
        assert crash("q", 1, 40) == (3, "p")
        assert crash("p", 4, 70) == (2, "p")  # the first two are over an hour ago
        assert crash("q", 2, 90) == (2, "q")
        assert crash("q", 3, 95) == (3, "q")
        assert crash("r", 1, 300) == (1, "r")

    def test_a_pod_of_others(self):
        """Crashes of pods whose Job is not known are nobody's."""
        old = pod(restarts=1, owner="other")

        assert self.book().pod_changed(old, pod(restarts=2, owner="other")) is None


class TestNotes:
    def failed(self, name="p", epoch=1):
        """A pod before and after its failure."""
        return pod(name, epoch), pod(name, epoch, phase="Failed")

    def test_failures_are_noted_until_they_are_judged(self):
        """What is noted meanwhile stays."""
        book = ledger()
        assert book.pod_changed(*self.failed("a"), 3.0) == GROUP
        seen = book.notes(GROUP)
        book.note_status(GROUP, status(1, 0), 0, 0.0)
        book.pod_changed(*self.failed("b"), 4.0)
        book.forget_notes(GROUP, seen)

        assert [(f.old.metadata.name, f.epoch, f.at) for f in seen.failures] == [("a", 1, 3.0)]
        assert [f.old.metadata.name for f in book.notes(GROUP).failures] == ["b"]

    def test_only_the_newest_epoch_and_only_some(self):
        """However many pods fail, a few are kept; those of an older epoch make room."""
        book = ledger()
        for number in range(MAX_FAILURES + 5):
            book.pod_changed(*self.failed(f"p{number}"))
        assert len(book.notes(GROUP).failures) == MAX_FAILURES

        book.pod_changed(*self.failed("q", 2))
        book.pod_changed(*self.failed("r", 1))
        assert [f.old.metadata.name for f in book.notes(GROUP).failures] == ["q"]

    def test_failures_newer_than_the_known_epoch_are_kept(self):
        """They are judged when the JobSet's cache has come so far."""
        book = ledger()
        book.note_status(GROUP, status(1, 0), 0, 0.0)
        book.pod_changed(*self.failed("a", 2))
        book.forget_notes(GROUP, book.notes(GROUP))
        assert len(book.notes(GROUP).failures) == 1

        book.note_status(GROUP, status(2, 1), 0, 0.0)
        book.forget_notes(GROUP, book.notes(GROUP))
        assert book.notes(GROUP).failures == ()

    def test_an_epoch_that_is_over_has_no_failures(self):
        """All its pods end, one after the other."""
        book = ledger()
        book.note_status(GROUP, status(1, 1), 0, 0.0)

        book.pod_changed(*self.failed("a", 1))
        assert book.notes(GROUP).failures == ()

    def test_pods_of_others(self):
        """A pod that belongs to no group fails unnoticed."""
        book = ledger()
        before, after = pod(epoch=1, owner="other"), pod(epoch=1, owner="other", phase="Failed")

        assert book.pod_changed(before, after) is None
        assert Observations() == book.notes(AttemptKey("ns", "other", "o", 0))

    def test_a_job_that_is_recreated(self):
        """Its name is noted when it begins to go, if it was asked for."""
        book = EpochLedger()
        asked, going = annotated(job()), annotated(job(), deleting=True)
        book.job_changed(None, asked)
        book.job_changed(None, job("two"))

        assert book.job_changed(asked, going) == GROUP
        assert book.notes(GROUP).remade == "job"
        assert book.job_changed(going, going) is None
        book.forget_notes(GROUP, book.notes(GROUP))
        assert book.notes(GROUP).remade == ""

        book.job_changed(job("two"), None)
        assert book.notes(GROUP).remade == ""

    def test_when_epochs_came_up(self):
        """The newest one, and the latest that all pods were at."""
        book = ledger()
        book.pod_changed(None, pod("a", 1), 1.0)
        book.pod_changed(None, pod("b", 1), 2.0)
        notes = book.notes(GROUP)
        assert (notes.opened, notes.single) == ((1, 1.0), (1, 1.0))

        book.pod_changed(pod("a", 1), pod("a", 2), 3.0)
        book.pod_changed(pod("b", 1), pod("b", 2), 5.0)
        notes = book.notes(GROUP)
        assert (notes.opened, notes.single) == ((2, 3.0), (2, 5.0))

    def test_unusable_annotations_are_numbered(self):
        """A reconcile sees whether there are any that it has not told of."""
        book = ledger()
        book.pod_changed(None, pod("a", "x"))
        assert book.notes(GROUP).invalid == 1

        book.pod_changed(pod("a", "x"), pod("a", "y"))
        book.pod_changed(pod("a", "y"), pod("a", 1))
        assert book.notes(GROUP).invalid == 2


def annotated(of, *, deleting=False):
    """The Job with the annotation for being made anew."""
    changes = {"annotations": {keys.RESTART_ANNOTATION: ""}}
    if deleting:
        changes["deletion_timestamp"] = datetime(2026, 1, 1, tzinfo=UTC)
    return evolve(of, metadata=evolve(of.metadata, **changes))


def test_two_pods_of_one_index_are_doubles_until_one_is_gone():
    """The barrier waits for that: another index may have no pod."""
    book = ledger(job(), job("job2"))
    first, second = pod("a", 1, index=0), pod("b", index=0)  # the second has not reported yet
    book.pod_changed(None, first)
    book.pod_changed(None, pod("c", 1, index=0, owner="job2"))
    before = book.histogram(GROUP).doubles
    book.pod_changed(None, second)
    both = book.histogram(GROUP).doubles
    book.pod_changed(first, pod("a", 2, index=0))
    moved = book.histogram(GROUP).doubles
    book.job_changed(job(), None)
    without = book.histogram(GROUP).doubles
    book.job_changed(None, job())
    again = book.histogram(GROUP).doubles
    book.pod_changed(second, pod("b", index=0, phase="Failed"))

    assert (before, both, moved, without, again) == (0, 1, 1, 0, 1)
    assert book.histogram(GROUP).doubles == 0
