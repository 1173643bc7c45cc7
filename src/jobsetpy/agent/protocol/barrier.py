"""Decisions of the agent, without I/O, clock or event loop.

Safety of the whole protocol rests on these few lines: a worker may run at epoch ``e`` only after
the controller saw every pod of the group at ``e``. They are separate so that tests can try every
order of events, and so that both modes of the agent (sidecar, supervisor) share them.

Rules (KEP-467, "Implementation - Agent sidecar"):

* The first observed state of the JobSet fixes the epoch of this run: one more than the synced
  epoch.
* A pod that reached the synced epoch in an earlier run of the agent, and whose worker has not
  started since, keeps that epoch: the controller has counted it.
* The barrier lifts when the synced epoch equals ours, and never closes again in this run.
* The run is over when our epoch is at or below the deprecated epoch.
* It is over, too, when a later epoch is synced: the group is complete without this pod, which
  another one has replaced. An agent that was cut off with its node may see no other sign of it.

The first observed state must be a **consistent** one (see :meth:`Barrier.observe`).
"""

from __future__ import annotations

import msgspec


class PatchEpoch(msgspec.Struct, frozen=True):
    """Store ``epoch`` in the annotation of the agent's own pod; retry until it is stored."""

    epoch: int


class Lift(msgspec.Struct, frozen=True):
    """Let the worker run: every pod of the group has reached ``epoch``."""

    epoch: int


class Restart(msgspec.Struct, frozen=True):
    """Restart the worker: ``epoch`` is over (``deprecated`` is at or above it).

    A sidecar exits with its restart code; a supervisor stops its child and calls
    :meth:`Barrier.next_round`. If this pod was ``replaced``, workers of a later epoch run already,
    one of them with the rank of this pod's worker, which has to end immediately.
    """

    epoch: int
    deprecated: int
    replaced: bool = False


class Foreign(msgspec.Struct, frozen=True):
    """Another JobSet with the name of the agent's own; reported once for each ``uid``."""

    uid: str


Action = PatchEpoch | Lift | Restart | Foreign


class Barrier:
    """State of one agent in the restart protocol; it holds at most one epoch at a time.

    All methods are synchronous and return the actions to take, in order. Each ``PatchEpoch``,
    ``Lift`` and ``Restart`` is returned once per round, so the caller need not de-duplicate; only a
    ``Restart`` of a pod that turns out to be ``replaced`` later is returned again.

    Args:
        uid: UID of the JobSet that owns this pod; "" if unknown, then the UID of the first JobSet
            observed. A JobSet with another UID, created later under the same name, neither lifts
            this barrier nor deprecates its epoch.
        arrived: UID of a JobSet and the epoch that an earlier run of this pod has reported to it,
            if no worker of the pod can have started since (see ``saved_epoch``).
    """

    __slots__ = (
        *("_arrived", "_deprecated", "_foreign", "_over", "_replaced", "_synced"),
        *("epoch", "lifted", "uid"),
    )

    def __init__(self, *, uid: str = "", arrived: tuple[str, int] = ("", 0)) -> None:
        self.uid = uid
        """UID of the JobSet to follow; "" before the first state if none was given."""
        self._arrived = arrived
        self._foreign = ""
        self._synced = 0
        self._deprecated = 0
        self.epoch = 0
        """Epoch of this round; 0 before the first observed state."""
        self.lifted = False
        """True if the worker may run."""
        self._over = False
        self._replaced = False

    def observe(self, uid: str, synced: int, deprecated: int) -> list[Action]:
        """Process one state of the JobSet.

        The first state observed fixes the epoch, so it must not be older than the state that the
        previous run of this pod acted on: a list or streaming list without a resourceVersion, used
        only when it is complete. A state from an API server's lagging cache would give an epoch
        below the one in the pod's annotation. Later states may be delayed but, being a watch's,
        come in order.

        Args:
            uid: the JobSet's ``metadata.uid``.
            synced: its ``status.syncedEpoch``, 0 when unset.
            deprecated: its ``status.deprecatedEpoch``, 0 when unset.
        """
        if not self.uid:
            self.uid = uid
        if uid != self.uid:
            if uid == self._foreign:
                return []
            self._foreign = uid
            return [Foreign(uid)]
        # Neither number ever decreases; an older state from a relist must not lower them.
        self._synced = max(self._synced, synced)
        self._deprecated = max(self._deprecated, deprecated)
        if not self.epoch:
            if self._arrived == (uid, self._synced) and self._deprecated < self._synced:
                self.epoch, self.lifted = self._synced, True
                return [Lift(self.epoch)]
            return self._join()
        replaced = self.epoch < synced
        if self._over and not (replaced and not self._replaced):
            return []
        if self.epoch < max(synced, deprecated + 1):
            self._over, self._replaced = True, replaced
            return [Restart(self.epoch, deprecated, replaced=replaced)]
        if not self.lifted and self.epoch == synced:
            self.lifted = True
            return [Lift(self.epoch)]
        return []

    def pod_replaced(self) -> list[Action]:
        """End the run because the pod is presumed gone, regardless of the JobSet's state.

        That is not certain, so the worker gets its stop signal and its grace period.
        """
        if not self.epoch or self._over:
            return []
        self._over = True
        return [Restart(self.epoch, self._deprecated)]

    def next_round(self) -> list[Action]:
        """Close the barrier and join the next epoch; for an agent that outlives its worker.

        Called after the worker was stopped because of a ``Restart``, or after it failed by itself
        while the barrier was lifted. The new epoch is higher than every earlier one.
        """
        self.lifted = False
        self._over = self._replaced = False
        return self._join()

    def _join(self) -> list[Action]:
        # One more than the synced epoch, by the KEP. The deprecated epoch exceeds the synced one
        # only after a wrong write to the status or an annotation; an epoch at or below it would
        # then be over immediately, after each restart, for ever.
        self.epoch = max(self._synced, self._deprecated) + 1
        return [PatchEpoch(self.epoch)]
