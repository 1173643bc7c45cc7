"""Backend of gangs at this moment: what the configuration requests and the cluster has.

With ``auto``: native gangs if the API server serves ``PodGroup``, else the coscheduler if one is
installed, else labels. With ``podgroup``, labels are the fallback. Both can change while a manager
runs: the control plane is upgraded, a coscheduler is installed or removed.

A coscheduler publishes its settings in a Lease, which exists as long as it is installed and is
renewed while one leads. Each replica of a manager watches it; its webhooks need it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock
from jobsetpy.api import keys
from jobsetpy.api.coordination import Lease
from jobsetpy.reconcilers.coscheduling import status as messages
from jobsetpy.reconcilers.coscheduling.backends import (
    AUTO,
    COSCHEDULER,
    LABELS,
    PODGROUP,
    SchedulerFields,
)
from jobsetpy.reconcilers.coscheduling.native import NativeWatch
from jobsetpy.reconcilers.coscheduling.pod_groups import NativeObjects
from jobsetpy.reconcilers.coscheduling.published import CoschedulerState, coscheduler_state
from jobsetpy.reconcilers.coscheduling.requests import requests_gangs

SILENT_S: Final = 60.0
"""Time in seconds without renewals after which JobSets report that the coscheduler is missing."""


class BackendWatch:
    """Observer of the schedulers of gangs.

    Args:
        manager: not started yet.
        namespace: namespace of the coscheduler; ``None`` if none is watched.
        marks: configured scheduler fields of pods in gangs.
        native: observer of the API server's gangs; ``None`` if they are not watched.
        unseen: reason for which a backend cannot be seen; reported where it would be needed.
    """

    def __init__(
        self,
        manager: rt.Manager,
        namespace: str | None,
        marks: SchedulerFields,
        native: NativeWatch | None = None,
        unseen: str = "",
    ) -> None:
        self.leases: rt.SharedInformer[Lease] | None = None
        if namespace is not None:
            only = f"metadata.name={keys.COSCHEDULER_LEASE}"
            self.leases = manager.informer(Lease, namespace=namespace, field_selector=only)
            self.leases.add_handler(self)
        self._native = native
        self._clock: Clock = manager.clock
        self._asked = marks
        self._unseen = unseen
        self._state: CoschedulerState | None = None
        self._heard: float | None = None

    @property
    def marks(self) -> SchedulerFields:
        """Current scheduler fields of pods in gangs."""
        native = self._native is not None and self._native.api is not None
        return self._asked.resolved(self._state, native=native)

    @property
    def marks_of_others(self) -> SchedulerFields:
        """Current scheduler fields of pods that only have labels: never ``PodGroup``."""
        return self._asked.resolved(self._state)

    @property
    def scheduler(self) -> str:
        """Scheduler of gangs, for users; "" if there is none that is known."""
        backend = self.marks.backend
        if backend == PODGROUP and self._native is not None and self._native.api is not None:
            return f"kube-scheduler, {self._native.api.pod_group.RESOURCE.api_version}"
        return "the coscheduler" if backend == COSCHEDULER else ""

    @property
    def not_served(self) -> str:
        """Reason for which gangs are not scheduled; "" if they are, as far as is known."""
        backend = self.marks.backend
        if backend == LABELS and self._asked.backend != LABELS:
            missing = {AUTO: messages.NO_SCHEDULER, PODGROUP: messages.NO_POD_GROUPS}
            return missing[self._asked.backend] + (f" ({self._unseen})" if self._unseen else "")
        if backend != COSCHEDULER:
            return ""
        now = self._clock.monotonic()
        if self._heard is None:
            self._heard = now
        return messages.SILENT_COSCHEDULER if now - self._heard > SILENT_S else ""

    def native_objects(self, uid: str) -> NativeObjects | None:
        """Return the native objects of a JobSet; ``None`` if gangs are not native."""
        if self._native is None or self.marks.backend != PODGROUP:
            return None
        return self._native.objects_of(uid)

    def watches(self, jobsets: rt.Store) -> list[rt.Watch[Any]]:  # type: ignore[type-arg]
        """Return watches that queue JobSets with gangs when a coscheduler appears or goes."""
        out = [] if self._native is None else self._native.watches()
        if self.leases is not None:
            out.append(rt.Watch[Any](self.leases, _all_with_groups(jobsets)))
        return out

    # -- the Lease, as an informer's handler --------------------------------------------------

    def on_add(self, obj: Lease, *, initial: bool) -> None:
        """Handle the creation of the Lease."""
        self._see(obj, renewed=not initial)

    def on_update(self, old: Lease, new: Lease) -> None:
        """Handle a renewal or another change."""
        self._see(new, renewed=old.spec.renew_time != new.spec.renew_time)

    def on_delete(self, obj: Lease, *, final_state_known: bool) -> None:  # noqa: ARG002 - protocol
        """Handle the removal of the coscheduler."""
        self._state = None

    def _see(self, lease: Lease, *, renewed: bool) -> None:
        self._state = _state(lease)
        if renewed or self._heard is None:
            self._heard = self._clock.monotonic()


def _state(lease: Lease | None) -> CoschedulerState | None:
    if lease is None:
        return None
    return coscheduler_state(lease.metadata.annotations.get(keys.COSCHEDULER_QUEUE_ANNOTATION, ""))


def _all_with_groups(
    jobsets: rt.Store,  # type: ignore[type-arg]
) -> Callable[[rt.Event[Lease]], Iterable[rt.Request]]:
    def requests(event: rt.Event[Lease]) -> Iterable[rt.Request]:
        if (_state(event.old) is None) == (_state(event.new) is None):
            return ()
        return [rt.Request(each.metadata.key) for each in jobsets.list() if requests_gangs(each)]

    return requests
