"""The agent's decisions, without I/O, clock or event loop.

Safety of the whole protocol rests on these few lines: a worker may run at epoch ``e`` only after
the controller saw every pod of the group at ``e``. They are kept apart so that every order of
events can be tried on them, and so that both modes of the agent (sidecar, supervisor) share them.

Rules (KEP-467, "Implementation - Agent sidecar"):

* The first sight of the JobSet fixes the epoch of this run: one more than the synced epoch.
* A pod that came to the synced epoch already, in an earlier run of the agent, and whose worker has
  not started since, stays there: it is one of those that the controller saw.
* The barrier lifts when the synced epoch equals ours, and never closes again in this run.
* The run is over when our epoch is at or below the deprecated epoch.
* It is over, too, when a later epoch is synced: the group is complete without this pod, whose place
  another one has. An agent that was cut off with its node may see nothing else of it.

The caller must make the first sight a **consistent** one (see :meth:`Barrier.observe`).
"""

from __future__ import annotations

import msgspec


class PatchEpoch(msgspec.Struct, frozen=True):
    """Store ``epoch`` in the annotation of the own pod; try until it is stored."""

    epoch: int


class Lift(msgspec.Struct, frozen=True):
    """Every pod of the group has reached ``epoch``: let the worker run."""

    epoch: int


class Restart(msgspec.Struct, frozen=True):
    """``epoch`` is over (``deprecated`` is at or above it): restart the worker.

    A sidecar exits with its restart code; a supervisor stops its child and calls
    :meth:`Barrier.next_round`. If this pod was ``replaced``, workers of a later epoch run already,
    one of them with the rank of ours, which has to end at once.
    """

    epoch: int
    deprecated: int
    replaced: bool = False


class Foreign(msgspec.Struct, frozen=True):
    """A JobSet of our JobSet's name, but not ours; said once for each ``uid``."""

    uid: str


Action = PatchEpoch | Lift | Restart | Foreign


class Barrier:
    """One agent's view of the restart protocol; at most one epoch is held at a time.

    All methods are synchronous and return what is to be done, in order. Each ``PatchEpoch``,
    ``Lift`` and ``Restart`` is returned once per round, so the caller need not de-duplicate.

    Args:
        uid: UID of the JobSet that owns this pod, "" when it is not known; then the first JobSet
            seen is taken for it. A JobSet with another UID, created later under the same name,
            neither lifts this barrier nor deprecates its epoch.
        arrived: UID of a JobSet, and the epoch of it that an earlier run of this pod has reported,
            if no worker of the pod can have started since (see ``arrival``).
    """

    __slots__ = (
        *("_arrived", "_deprecated", "_epoch", "_foreign", "_lifted", "_over", "_synced", "_uid"),
    )

    def __init__(self, *, uid: str = "", arrived: tuple[str, int] = ("", 0)) -> None:
        self._uid = uid
        self._arrived = arrived
        self._foreign = ""
        self._synced = 0
        self._deprecated = 0
        self._epoch = 0
        self._lifted = False
        self._over = False

    @property
    def uid(self) -> str:
        """UID of the JobSet this barrier obeys; "" before the first sight when none was given."""
        return self._uid

    @property
    def epoch(self) -> int:
        """The epoch of this round; 0 before the first sight."""
        return self._epoch

    @property
    def lifted(self) -> bool:
        """Whether the worker may run."""
        return self._lifted

    def observe(self, uid: str, synced: int, deprecated: int) -> list[Action]:
        """Take in one state of the JobSet.

        The first state observed fixes the epoch, so it must not be older than the state that the
        previous run of this pod acted upon: a list or streaming list without a resourceVersion,
        taken only when it is complete. A state from an API server's lagging cache would give an
        epoch below the one the pod's annotation shows already. Later states may be delayed but,
        being a watch's, come in order.

        Args:
            uid: the JobSet's ``metadata.uid``.
            synced: its ``status.syncedEpoch``, 0 when unset.
            deprecated: its ``status.deprecatedEpoch``, 0 when unset.
        """
        if not self._uid:
            self._uid = uid
        if uid != self._uid:
            if uid == self._foreign:
                return []
            self._foreign = uid
            return [Foreign(uid)]
        # Neither number ever falls; should a relist show an older state, it takes nothing back.
        self._synced = max(self._synced, synced)
        self._deprecated = max(self._deprecated, deprecated)
        if not self._epoch:
            if self._arrived == (uid, self._synced) and self._deprecated < self._synced:
                self._epoch, self._lifted = self._synced, True
                return [Lift(self._epoch)]
            return self._join()
        if self._over:
            return []
        if self._epoch < max(synced, deprecated + 1):
            self._over = True
            return [Restart(self._epoch, deprecated, replaced=self._epoch < synced)]
        if not self._lifted and self._epoch == synced:
            self._lifted = True
            return [Lift(self._epoch)]
        return []

    def pod_replaced(self) -> list[Action]:
        """The pod is presumed gone, whatever the JobSet's state: the run is over.

        That is not certain, so the worker gets its stop signal and its grace period.
        """
        if not self._epoch or self._over:
            return []
        self._over = True
        return [Restart(self._epoch, self._deprecated)]

    def next_round(self) -> list[Action]:
        """Close the barrier and join the next epoch, for an agent that outlives its worker.

        To be called after the worker was stopped because of a ``Restart``, or after it failed by
        itself while the barrier was lifted. The epoch is above every one held before.
        """
        self._lifted = False
        self._over = False
        return self._join()

    def _join(self) -> list[Action]:
        # One more than the synced epoch, by the KEP. The deprecated epoch exceeds the synced one
        # only if somebody wrote a wrong status or annotation; then an epoch at or below it would
        # be over at once, again after each restart, for ever.
        self._epoch = max(self._synced, self._deprecated) + 1
        return [PatchEpoch(self._epoch)]
