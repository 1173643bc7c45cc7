"""Numbers of pods by epoch, as pods and Jobs change: which events change a group, and what is noted.

That the numbers equal a full count is in test/property/test_restart_in_place_protocol.py.
"""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSetStatus
from jobsetpy.reconcilers.restart_in_place.observed.attempt_counts import MAX_FAILURES
from jobsetpy.reconcilers.restart_in_place.observed.job_counts import Counts
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import Observations
from jobsetpy.reconcilers.restart_in_place.observed.ledger import EpochLedger
from jobsetpy.reconcilers.rules.membership import AttemptKey
from support.restarts import epoch_plans
from support.restarts.epoch_plans import GROUP, job

COUNTS = [field.name for field in attrs.fields(Counts)]
NEXT = GROUP._replace(attempt=1)


def pod(name="p", epoch=None, *, restarts=0, code=1, **fields):
    """Return a pod of a Job."""
    ended = {"terminated": {"exitCode": code}}
    one = {"name": "c", "restartCount": restarts, "lastState": ended}
    return epoch_plans.pod(name, epoch, containers=[one] if restarts else [], **fields)


def ledger(*jobs):
    """Return a ledger that knows some Jobs."""
    out = EpochLedger()
    for each in jobs or (job(),):
        out.job_changed(None, each)
    return out


def counts(book, group=GROUP):
    """Return numbers of pods by epoch, and of those that have succeeded."""
    histogram = book.histogram(group)
    return dict(histogram.epochs), histogram.succeeded


def counted(histogram):
    """Return all counts of a group; its observations are no counts."""
    return attrs.asdict(histogram, filter=lambda field, _: field.name in COUNTS)


def test_pods_are_counted_by_epoch():
    """A pod counts at its epoch, moves with it, and leaves the group when it is gone."""
    book = ledger()

    assert book.pod_changed(None, pod()) is None
    assert book.pod_changed(pod(), pod(epoch=1)) == GROUP
    assert book.pod_changed(None, pod("q", 1)) == GROUP
    assert counts(book) == ({1: 2}, 0)
    assert book.pod_changed(pod(epoch=1), pod(epoch=2)) == GROUP
    assert counts(book) == ({1: 1, 2: 1}, 0)
    assert book.pod_changed(pod(epoch=2), None) == GROUP
    assert counts(book) == ({1: 1}, 0)


def test_group_does_not_change_when_a_pod_keeps_its_epoch():
    """Other changes of pods cause no reconcile."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1, phase="Pending"))

    assert book.pod_changed(pod(epoch=1, phase="Pending"), pod(epoch=1)) is None


@pytest.mark.parametrize(
    "after",
    [
        pod(epoch=2, deleted=True),
        pod(epoch=2, restarts=1),
        pod(epoch=2, notes={keys.PROGRESS_ANNOTATION: "7"}),
        pod(epoch=2, index=1),
        pod(epoch=None, notes={keys.ATTEMPT_ANNOTATION: "1"}),
        pod(epoch="x"),
        pod(epoch=2, phase="Failed"),
    ],
    ids=["deleted", "restarted", "progress", "index", "attempt", "invalid", "failed"],
)
def test_pod_counts_in_all_respects_when_it_changes_its_epoch(after):
    """The counts are those of a ledger that has only received the pod's last state."""
    book, other = ledger(), ledger()
    book.pod_changed(None, pod(epoch=1))
    book.pod_changed(pod(epoch=1), after)
    other.pod_changed(None, after)

    seen, wanted = (counted(each.histogram(GROUP)) for each in (book, other))

    assert seen == wanted


def test_pod_that_is_being_deleted_counts_until_it_is_gone():
    """Its replacement is created only then; until then the group is not complete at a new epoch."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1))

    assert book.pod_changed(pod(epoch=1), pod(epoch=1, deleted=True)) == GROUP
    assert counts(book) == ({1: 1}, 0)
    assert book.histogram(GROUP).leaving == 1


def test_succeeded_pods_that_are_gone_are_known_from_their_job():
    """Deleting a succeeded pod does not bring it back into the group."""
    book = ledger()
    done = pod(epoch=1, phase="Succeeded")
    book.pod_changed(None, done)
    assert book.job_changed(job(), job(succeeded=1)) == GROUP
    book.pod_changed(done, None)

    assert counts(book) == ({}, 1)


def test_succeeded_pod_of_a_job_without_indexes_counts_once():
    """Such a Job stores UIDs before it removes the finalizers, and counts the pods after it."""
    book = ledger()
    done = pod("p", 1, phase="Succeeded")
    book.pod_changed(None, done)
    uncounted = job(uncountedTerminatedPods={"succeeded": ["p"]})
    book.job_changed(job(), uncounted)
    seen = [counts(book)]
    untracked = pod("p", 1, phase="Succeeded", tracked=False)
    book.pod_changed(done, untracked)
    seen.append(counts(book))
    book.job_changed(uncounted, job(succeeded=1))
    seen.append(counts(book))
    book.pod_changed(untracked, None)

    assert [*seen, counts(book)] == [({}, 1)] * 4


@pytest.mark.parametrize("owner", [None, "made-up"], ids=["absent", "unknown"])
def test_pod_does_not_count_when_its_job_is(owner):
    """Neither labels nor the UID of an unknown Job make a pod a member of the group."""
    book = ledger()

    assert book.pod_changed(None, pod(epoch=9, job=owner)) is None
    assert counts(book) == ({}, 0)


def test_pods_count_when_their_job_is_observed_after_them():
    """From the moment their Job is known."""
    book = EpochLedger()
    book.pod_changed(None, pod(epoch=1))
    book.pod_changed(None, pod("q", "x"))
    assert counts(book) == ({}, 0)

    assert book.job_changed(None, job()) == GROUP
    assert counts(book) == ({1: 1}, 0)


def test_pods_leave_the_group_with_their_job():
    """Orphans of a deleted Job no longer count."""
    book = ledger(job(), job("other"))
    book.pod_changed(None, pod(epoch=1))
    book.pod_changed(None, pod("q", "x"))
    book.pod_changed(None, pod("r", 1, job="other"))

    assert book.job_changed(job(), None) == GROUP
    assert counts(book) == ({1: 1}, 0)


def test_pod_moves_to_another_group_when_its_controller_changes():
    """A replaced pod of the same name."""
    book = ledger(job(), job("two", attempt="1"))
    book.pod_changed(None, pod(epoch=1))

    assert book.pod_changed(pod(epoch=1), pod(epoch=1, job="two")) == NEXT
    assert counts(book) == ({}, 0)
    assert counts(book, NEXT) == ({1: 1}, 0)


def test_pods_move_with_their_job_when_its_attempt_is_edited():
    """They belong to the group of that attempt."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1))

    assert book.job_changed(job(), job(attempt="1")) == NEXT
    assert counts(book) == ({}, 0)
    assert counts(book, NEXT) == ({1: 1}, 0)


def test_job_has_no_group_when_its_attempt_is_invalid():
    """Its pods do not count until it is valid again."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1))

    assert book.job_changed(job(), job(attempt="x")) == GROUP
    assert counts(book) == ({}, 0)
    assert book.job_changed(job(attempt="x"), job()) == GROUP
    assert counts(book) == ({1: 1}, 0)


@pytest.mark.parametrize(
    "owner",
    [{"kind": "CronJob", "api_version": "batch/v1"}, {"api_version": "example.com/v1alpha2"}],
)
def test_job_has_no_group_when_its_controller_is_no_jobset(owner):
    """Only Jobs whose controller is a JobSet matter."""
    (reference,) = job().metadata.owner_references
    of = evolve(job().metadata, owner_references=(evolve(reference, **owner),))

    assert EpochLedger().job_changed(None, evolve(job(), metadata=of)) is None


def test_group_does_not_change_when_a_job_keeps_attempt_and_successes():
    """Other changes of Jobs cause no reconcile."""
    book = ledger()

    assert book.job_changed(job(), job()) is None


def test_pod_does_not_count_when_its_annotation_is_invalid():
    """Only an epoch counts."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1))
    assert book.pod_changed(None, pod("q", "two")) == GROUP
    assert book.pod_changed(pod("q", "two"), pod("q", "three")) == GROUP
    assert book.pod_changed(pod("q", "three"), pod("q", "three")) is None

    assert counts(book) == ({1: 1}, 0)

    book.pod_changed(pod("q", "three"), pod("q", 1))
    assert counts(book) == ({1: 2}, 0)


def test_first_pod_at_an_epoch_is_known():
    """It is reported as the pod that began the restart."""
    book = ledger()
    book.pod_changed(None, pod(epoch=1))
    book.pod_changed(None, pod("q", 1))
    book.pod_changed(pod("q", 1), pod("q", 2))
    book.pod_changed(pod(epoch=1), pod(epoch=2))

    assert book.notes(GROUP).opener == (2, "q", "")


def test_group_changes_when_a_container_is_restarted():
    """Also in a pod without an epoch."""
    book = ledger()
    book.pod_changed(None, pod())

    assert book.pod_changed(pod(), pod(restarts=1)) == GROUP
    assert book.pod_changed(pod(restarts=1), pod(restarts=1)) is None


def test_group_of_a_pod_is_found_by_the_uid_of_its_job():
    """Nothing else is needed."""
    book = ledger()

    assert book.group_of_pod(pod()) == GROUP
    assert book.group_of_pod(pod(job="other")) is None


def status(synced, deprecated, **record):
    """Return a JobSet's status."""
    record = InPlaceRestartStatus(**record)
    return JobSetStatus(synced_epoch=synced, deprecated_epoch=deprecated, in_place_restart=record)


class TestCrashes:
    """Containers that fail repeatedly while the barrier is closed."""

    def book(self, synced=0, deprecated=0, **record):
        """Return a ledger that knows the group's epochs."""
        out = ledger()
        out.note_status(GROUP, status(synced, deprecated, **record), 0, 0.0)
        return out

    def test_crashes_are_forgotten_when_their_pods_are_gone(self):
        """The number of pods with new names has no limit."""
        book = self.book()
        for number in range(100):
            self.crash(book, 0, 1, 2, name=f"p-{number}")
            book.pod_changed(pod(f"p-{number}", 1, restarts=2, code=1), None)

        assert not book._attempts[GROUP].crashed

    def crash(self, book, *counts, name="p", code=1, epoch=1):
        """Restart a container up to each count in turn; return the worst crash of the group."""
        for before, after in pairwise(counts):
            old = pod(name, epoch, restarts=before, code=code)
            book.pod_changed(old, pod(name, epoch, restarts=after, code=code))
        return [*book.histogram(GROUP).crashes.values()]

    def test_each_failure_counts_before_the_first_start(self):
        """The pod with the most is named."""
        book = self.book()

        assert self.crash(book, 0, 1, 2, 3) == [(3, "p", "c")]
        assert self.crash(book, 0, 1, 2, name="q") == [(3, "p", "c")]

    def test_restarts_after_exit_code_0_do_not_count(self):
        """Neither then nor when the container fails later."""
        book = self.book()

        assert self.crash(book, *range(21), code=0) == []
        assert self.crash(book, 20, 21) == [(1, "p", "c")]

    def test_several_restarts_in_one_event_count_as_one(self):
        """Only the latest of them is known to follow a failure."""
        assert self.crash(self.book(), 0, 9) == [(1, "p", "c")]

    def test_restart_of_the_group_is_not_counted(self):
        """It restarts each container once; a manager that has not observed it knows the count."""
        book = self.book(1, 1, container_restarts=4)

        assert self.crash(book, 4, 5) == []
        assert self.crash(book, 5, 6, 7) == [(2, "p", "c")]
        assert self.crash(book, 1, 2, 3, name="q") == [(2, "p", "c")]
        assert self.crash(self.book(1, 1, container_restarts=4), 5, 6, name="r") == [(1, "r", "c")]

    def test_restarts_for_a_kubelet_that_restarted_are_not_counted(self):
        """The agent reports each before; statuses may come after the next report, or never."""
        book, was = self.book(), pod()
        for reports, restarts in ((1, 0), (1, 1), (2, 1), (3, 1), (3, 2), (3, 3), (4, 3)):
            unprobed = {"jobset.sigs.k8s.io/in-place-restart-unprobed": f"1 {reports}"}
            now = pod(restarts=restarts, notes=unprobed)
            book.pod_changed(was, now)
            was = now

        assert book.histogram(GROUP).crashes == {}
        for restarts in (4, 5):
            book.pod_changed(was, now := pod(restarts=restarts, notes=unprobed))
            was = now
        assert [*book.histogram(GROUP).crashes.values()] == [(1, "p", "c")]

    def test_nothing_counts_while_workers_run(self):
        """A failure opens an epoch then, or is of no consequence."""
        book = self.book(1, 0)
        book.pod_changed(None, pod("other", 1))

        assert self.crash(book, 0, 1, 2, 3) == []

    def test_count_is_reset_by_a_new_epoch(self):
        """Each restart of the group has its own count."""
        book = self.book()
        self.crash(book, 0, 1, 2)
        book.note_status(GROUP, status(1, 0), 0, 0.0)

        assert book.histogram(GROUP).crashes == {}

    def test_another_manager_continues_counting(self):
        """The count of the former one is in the JobSet's status."""
        record = {"crashes": 2, "crashing_pod": "p", "crashing_container": "c"}
        book = self.book(1, 1, container_restarts=1, **record)

        assert self.crash(book, 3, 4) == [(3, "p", "c")]

    def test_crashes_do_not_count_when_the_job_of_the_pod_is_unknown(self):
        """They belong to no group."""
        old = pod(restarts=1, job="other")

        assert self.book().pod_changed(old, pod(restarts=2, job="other")) is None


class TestNotes:
    def failed(self, name="p", epoch=1):
        """Return a pod before and after its failure."""
        return pod(name, epoch), pod(name, epoch, phase="Failed")

    def test_failures_are_kept_until_they_are_judged(self):
        """Those that are observed meanwhile stay."""
        book = ledger()
        assert book.pod_changed(*self.failed("a"), 3.0) == GROUP
        seen = book.notes(GROUP)
        book.note_status(GROUP, status(1, 0), 0, 0.0)
        book.pod_changed(*self.failed("b"), 4.0)
        book.forget_notes(GROUP, seen)

        assert [(f.old.metadata.name, f.epoch, f.at) for f in seen.failures] == [("a", 1, 3.0)]
        assert [f.old.metadata.name for f in book.notes(GROUP).failures] == ["b"]

    def test_limited_number_of_failures_is_kept_of_the_newest_epoch(self):
        """A failure at a newer epoch replaces those of older ones."""
        book = ledger()
        for number in range(MAX_FAILURES + 5):
            book.pod_changed(*self.failed(f"p{number}"))
        assert len(book.notes(GROUP).failures) == MAX_FAILURES

        book.pod_changed(*self.failed("q", 2))
        book.pod_changed(*self.failed("r", 1))
        assert [f.old.metadata.name for f in book.notes(GROUP).failures] == ["q"]

    def test_failures_newer_than_the_known_epoch_are_kept(self):
        """They are judged when the cached JobSet has that epoch."""
        book = ledger()
        book.note_status(GROUP, status(1, 0), 0, 0.0)
        book.pod_changed(*self.failed("a", 2))
        book.forget_notes(GROUP, book.notes(GROUP))
        assert len(book.notes(GROUP).failures) == 1

        book.note_status(GROUP, status(2, 1), 0, 0.0)
        book.forget_notes(GROUP, book.notes(GROUP))
        assert book.notes(GROUP).failures == ()

    def test_failures_are_not_kept_when_their_epoch_is_over(self):
        """All its pods end, one after the other."""
        book = ledger()
        book.note_status(GROUP, status(1, 1), 0, 0.0)

        book.pod_changed(*self.failed("a", 1))
        assert book.notes(GROUP).failures == ()

    def test_failure_is_not_kept_when_the_pod_belongs_to_no_group(self):
        """Its Job is unknown."""
        book = ledger()
        before, after = pod(epoch=1, job="other"), pod(epoch=1, job="other", phase="Failed")

        assert book.pod_changed(before, after) is None
        assert book.notes(AttemptKey("default", "other", "o", 0)) == Observations()

    def test_job_that_is_recreated_is_named_when_its_deletion_begins(self):
        """If the annotation asked for it."""
        book = EpochLedger()
        notes = {keys.RESTART_ANNOTATION: ""}
        asked, going = job(notes=notes), job(notes=notes, deleted=True)
        book.job_changed(None, asked)
        book.job_changed(None, job("two"))

        assert book.job_changed(asked, going) == GROUP
        assert book.notes(GROUP).remade == "j"
        assert book.job_changed(going, going) is None
        book.forget_notes(GROUP, book.notes(GROUP))
        assert book.notes(GROUP).remade == ""

        book.job_changed(job("two"), None)
        assert book.notes(GROUP).remade == ""

    def test_times_of_epochs_are_kept(self):
        """Newest epoch, and the latest one that all pods had reached."""
        book = ledger()
        book.pod_changed(None, pod("a", 1), 1.0)
        book.pod_changed(None, pod("b", 1), 2.0)
        notes = book.notes(GROUP)
        assert (notes.newest_epoch_seen, notes.single) == ((1, 1.0), (1, 1.0))

        book.pod_changed(pod("a", 1), pod("a", 2), 3.0)
        book.pod_changed(pod("b", 1), pod("b", 2), 5.0)
        notes = book.notes(GROUP)
        assert (notes.newest_epoch_seen, notes.single) == ((2, 3.0), (2, 5.0))


def test_two_pods_of_one_index_are_doubles_until_one_is_gone():
    """The barrier waits for that: another index may have no pod."""
    book = ledger(job(), job("job2"))
    first, second = pod("a", 1, index=0), pod("b", index=0)  # the second has not reported yet
    book.pod_changed(None, first)
    book.pod_changed(None, pod("c", 1, index=0, job="job2"))
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
