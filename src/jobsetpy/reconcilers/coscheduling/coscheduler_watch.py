"""Watch of the Lease in which a coscheduler publishes the state of its queue.

The Lease exists as long as a coscheduler is installed, and its content counts as long as it is
renewed. Its age at the start of a manager is unknown, because clocks may differ: so it counts only
after the first observed renewal. Each replica of a manager watches it; its webhooks need it as
well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock
from jobsetpy.api import keys
from jobsetpy.api.coordination import Lease
from jobsetpy.reconcilers.coscheduling import status as messages
from jobsetpy.reconcilers.coscheduling.backends import AUTO, SchedulerFields
from jobsetpy.reconcilers.coscheduling.queue_state import QueueState, queue_state

SILENT_S: Final = 60.0
"""Time in seconds without renewals after which JobSets report that the coscheduler is missing."""


class CoschedulerWatch:
    """Observer of the Lease.

    Args:
        manager: not started yet.
        namespace: namespace of the coscheduler.
        marks: configured scheduler fields of pods in gangs.
    """

    def __init__(self, manager: rt.Manager, namespace: str, marks: SchedulerFields) -> None:
        self.leases: rt.SharedInformer[Lease] = manager.informer(
            Lease, namespace=namespace, field_selector=f"metadata.name={keys.COSCHEDULER_LEASE}"
        )
        self.leases.add_handler(self)
        self._clock: Clock = manager.clock
        self._asked = marks
        self._state: QueueState | None = None
        self._counts_until = 0.0
        self._heard: float | None = None

    @property
    def marks(self) -> SchedulerFields:
        """Current scheduler fields of pods in gangs."""
        return self._asked.resolved(self._state)

    @property
    def not_served(self) -> str:
        """Reason for which gangs are not scheduled; "" if they are, as far as is known."""
        if self._asked.backend == AUTO and self._state is None:
            return messages.NO_COSCHEDULER
        now = self._clock.monotonic()
        if self._heard is None:
            self._heard = now
        return messages.SILENT_COSCHEDULER if now - self._heard > SILENT_S else ""

    @property
    def queue_is_empty(self) -> bool:
        """Return whether a live coscheduler has an empty queue, so that pods need no gate."""
        if self._asked.always_gate or self._clock.monotonic() >= self._counts_until:
            return False
        return self._state is not None and not self._state.waiting

    def watch(self, jobsets: rt.Store) -> rt.Watch[Lease]:  # type: ignore[type-arg]
        """Return a watch that queues JobSets with gangs when a coscheduler appears or goes."""
        return rt.Watch(self.leases, _all_with_groups(jobsets))

    # -- the Lease, as an informer's handler --------------------------------------------------

    def on_add(self, obj: Lease, *, initial: bool) -> None:
        """Handle the creation of the Lease."""
        self._see(obj, renewed=not initial)

    def on_update(self, old: Lease, new: Lease) -> None:
        """Handle a renewal or another change."""
        self._see(new, renewed=old.spec.renew_time != new.spec.renew_time)

    def on_delete(self, obj: Lease, *, final_state_known: bool) -> None:  # noqa: ARG002 - protocol
        """Handle the removal of the coscheduler."""
        self._state, self._counts_until = None, 0.0

    def _see(self, lease: Lease, *, renewed: bool) -> None:
        self._state = _state(lease)
        if renewed or self._heard is None:
            self._heard = self._clock.monotonic()
        if renewed:
            lasts_s = lease.spec.lease_duration_seconds or 0
            self._counts_until = self._clock.monotonic() + lasts_s


def _state(lease: Lease | None) -> QueueState | None:
    if lease is None:
        return None
    return queue_state(lease.metadata.annotations.get(keys.COSCHEDULER_QUEUE_ANNOTATION, ""))


def _all_with_groups(
    jobsets: rt.Store,  # type: ignore[type-arg]
) -> Callable[[rt.Event[Lease]], Iterable[rt.Request]]:
    def requests(event: rt.Event[Lease]) -> Iterable[rt.Request]:
        if (_state(event.old) is None) == (_state(event.new) is None):
            return ()
        return [
            rt.Request(each.metadata.key)
            for each in jobsets.list()
            if keys.COSCHEDULING_ANNOTATION in each.metadata.annotations
        ]

    return requests
