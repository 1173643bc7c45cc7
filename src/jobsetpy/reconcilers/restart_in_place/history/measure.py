"""Measures of restarts, and of the runs between them."""

from __future__ import annotations

import attrs

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.detection.early import reported_in
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import record_of
from jobsetpy.reconcilers.restart_in_place.epochs.budget import EpochCharge
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause
from jobsetpy.reconcilers.restart_in_place.history.restart import Restart, Times
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import Arrival, ObservedEpochs
from jobsetpy.reconcilers.rules import history, time_spent
from jobsetpy.reconcilers.rules.in_place_record import missing_share
from jobsetpy.reconcilers.rules.plan import Run, Use
from jobsetpy.reconcilers.rules.times import Now


@attrs.frozen(kw_only=True)
class RunSoFar:
    """State of what is measured; its methods alone make another one.

    All times are on the monotonic clock.

    Args:
        restart: the restart in progress, or the last one.
        ran_from: time at which the current or last run started; 0 if unknown.
        ran_until: time of the first sign of the end of that run; 0 while it continues.
    """

    restart: Restart | None = None
    ran_from: float = 0.0
    ran_until: float = 0.0

    def seconds(self, at: float) -> float | None:
        """Return the seconds since the current or last run started; ``None`` if unknown."""
        return at - self.ran_from if self.ran_from else None

    def continued(self, jobset: JobSet, now: Now) -> RunSoFar:
        """Return the state with the beginning of a run that another manager has observed."""
        spent, since = jobset.status.time_spent, None
        if spent is not None and spent.activity == time_spent.RUNNING:
            since = spent.since
        if self.ran_from or since is None:
            return self
        ran_s = max(0.0, (now.wall - since).total_seconds())
        return attrs.evolve(self, ran_from=now.monotonic - ran_s)

    def waiting_for_backoff(self, since: float | None) -> RunSoFar:
        """Return the state while all pods wait for the back-off since a time, or do not."""
        restart = self.restart
        if restart is None or restart.over:
            return self
        if since is not None and restart.times.held is not None:
            return self
        return attrs.evolve(self, restart=restart.at(held=since))

    def without_waiting(self) -> RunSoFar:
        """Return the state while no pod is waited for: another manager has ended the restart."""
        if self.restart is None or self.restart.over:
            return self
        return attrs.evolve(self, restart=None)

    def stored(self, ended: Restart, at: float) -> RunSoFar:
        """Return the state after the end of a restart was written."""
        return attrs.evolve(self, restart=ended.at(stored=at))

    def deprecated(
        self, observed: ObservedEpochs, epoch: int, begun: Restart | None, at: float
    ) -> Measured:
        """Measure the deprecation of an epoch, with which a restart begins or none does."""
        begun = None if begun is None else begun.at(decided=at)
        run = attrs.evolve(self, restart=begun)
        run = attrs.evolve(run, ran_until=_end_of_run(run, observed, epoch + 1, at))
        return Measured(run_so_far=run, begun=begun)

    def synced(
        self,
        observed: ObservedEpochs,
        charge: EpochCharge,
        cause: Cause | None,
        seats_taken: int,
        at: float,
    ) -> Measured:
        """Measure the sync of an epoch: a restart, or first start, ends, and a run begins."""
        epoch, restart = charge.epoch, self.restart
        if restart is None or restart.epoch != epoch:
            # All pods arrived simultaneously, or another manager observed the beginning.
            restart = opened(observed, charge, cause, at)
        ended = _ended(observed, restart, charge, seats_taken, at)
        until = _end_of_run(attrs.evolve(self, restart=ended), observed, epoch, at)
        # All pods have arrived simultaneously: nothing was written when the restart began.
        at_once = charge.is_in_place_restart and observed.jobset.status.deprecated_epoch < epoch - 1
        return Measured(
            run_so_far=RunSoFar(restart=ended, ran_from=at),
            begun=ended if at_once else None,
            ended=ended,
            run=_run_before(observed, epoch, self.ran_from, until, at),
        )


@attrs.frozen(kw_only=True)
class Measured:
    """Measures of one plan.

    Args:
        run_so_far: state for the next plan.
        begun: restart that begins with the stored status.
        ended: restart, or first start, that ends with it.
        run: the run before, if the status ends a restart.
    """

    run_so_far: RunSoFar = attrs.field(factory=RunSoFar)
    begun: Restart | None = None
    ended: Restart | None = None
    run: Run = attrs.field(factory=Run)


def _end_of_run(run: RunSoFar, observed: ObservedEpochs, epoch: int, at: float) -> float:
    """Return the time of the first sign that the run before an epoch has ended, if known."""
    if run.ran_until or not run.ran_from:
        return run.ran_until
    seen = observed.notes.newest_epoch_seen
    signs = [at] if run.restart is None else [at, run.restart.times.began]
    if seen.epoch >= epoch:
        signs.append(seen.at)
    return max(run.ran_from, min(signs))


def _ended(
    observed: ObservedEpochs, restart: Restart, charge: EpochCharge, seats_taken: int, at: float
) -> Restart:
    """Return a restart whose epoch is synced."""
    notes, epoch = observed.notes, charge.epoch
    decided, left = restart.times.decided, None
    # Pods may all have come before the decision was stored: the phase then took no time.
    if decided is not None and notes.single.epoch >= epoch:
        left = max(notes.single.at, decided)
    last = notes.latest if notes.latest.epoch == epoch else Arrival()
    restart = attrs.evolve(restart, charge=charge, last=last, seats_taken=seats_taken)
    return restart.at(left=left, lifted=at)


def opened(
    observed: ObservedEpochs, charge: EpochCharge, cause: Cause | None, at: float
) -> Restart:
    """Return a restart with its cause and first sign, as far as they were observed.

    Args:
        observed: observed state of the JobSet.
        charge: charge of the epoch that is opened.
        cause: latest failure that was detected early.
        at: monotonic time of the decision.
    """
    notes, epoch, signs = observed.notes, charge.epoch, [at]
    if cause is None or cause.epoch != epoch - 1:
        cause = reported_in(notes, epoch)
    if charge.is_in_place_restart and notes.newest_epoch_seen.epoch >= epoch:
        signs.append(notes.newest_epoch_seen.at)
    # Failures of earlier epochs are no sign of this one, so only with a cause of its own.
    if charge.is_in_place_restart and cause is not None:
        signs += [one.at for one in notes.failures]
    first = notes.opener if notes.opener.epoch == epoch else Arrival()
    times = Times(began=min(signs))
    return Restart(epoch=epoch, charge=charge, cause=cause, first=first, times=times)


def _run_before(
    observed: ObservedEpochs, synced: int, ran_from: float, until: float, at: float
) -> Run:
    """Return the pods' reports on the run before a synced epoch, which has lasted until a time."""
    jobset, first, progress = observed.jobset, observed.notes.first, observed.pods.progress
    if first is None or first.epoch != synced:
        return Run()
    step, seconds = first.progress
    highest, run = record_of(jobset).highest_step, Run()
    if synced > 2:  # it had followed a restart
        lost = None if highest is None else max(0, highest - step + 1)
        before = _restart_s(jobset, synced - 1)
        took = None if before is None else seconds + before
        run = attrs.evolve(run, lost_steps=lost, first_step_s=took)
    if progress[0] != synced or not until:
        return run
    ran_s = until - ran_from
    stepping_s = ran_s - min(seconds, ran_s)
    again = -1 if highest is None else highest - step
    steps = progress[1] - step
    part = min(max(0, again), steps) / steps if steps > 0 else float(again >= 0)
    missing = missing_share(jobset)
    manned_s = stepping_s * (1 - missing)
    spent: dict[Use, float] = {
        "missing": ran_s * missing,
        "starting": (ran_s - stepping_s) * (1 - missing),
        "repeating": manned_s * part,
        "training": manned_s * (1 - part),
        "restarting": at - until,
    }
    return attrs.evolve(run, spent=spent)


def _restart_s(jobset: JobSet, epoch: int) -> float | None:
    """Return the seconds that a restart has taken, from the history; ``None`` if unknown."""
    for one in jobset.status.restart_history:
        if (one.kind, one.number, one.outcome) == (history.IN_PLACE, epoch, history.COMPLETED):
            phases = (one.detection_millis, one.deprecation_millis, one.gathering_millis)
            return sum(part or 0 for part in (*phases, one.lift_millis)) / 1000
    return None
