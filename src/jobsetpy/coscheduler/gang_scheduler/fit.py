"""Questions about the capacity for a gang."""

from __future__ import annotations

from jobsetpy.coscheduler.gang_scheduler.capacity.capacity import Capacity
from jobsetpy.coscheduler.gang_scheduler.gang import TrackedGang


class Fit:
    """Capacity check of gangs; without a source all gangs may fit.

    Args:
        capacity: source; ``None`` if the capacity is not known.
    """

    def __init__(self, capacity: Capacity | None) -> None:
        self._capacity = capacity
        self.is_counted = capacity is not None

    @property
    def scans(self) -> int:
        """Number of scans of all nodes so far."""
        return 0 if self._capacity is None else self._capacity.scans

    def fits(self, gang: TrackedGang) -> bool:
        """Return whether a gang may fit or is to be tried anyway."""
        return not gang.info().needs_capacity or self.counted(gang)

    def counted(self, gang: TrackedGang) -> bool:
        """Return whether a gang may fit."""
        return self._capacity is None or self._capacity.fits(gang.key, gang.missing)

    def ever_fits(self, gang: TrackedGang) -> bool:
        """Return :meth:`counted` for a cluster without other pods."""
        return self._capacity is None or self._capacity.ever_fits(gang.key, gang.missing)

    def needs_others(self, gang: TrackedGang) -> bool:
        """Return whether a gang may fit only if others gave up their reservations."""
        return not self.is_counted or (
            self.ever_fits(gang) and (gang.lacks_a_node or not self.fits(gang))
        )

    def may_share_nodes(self, gang: TrackedGang, other: TrackedGang) -> bool:
        """Return whether pods of two gangs may be placed on the same node."""
        return self._capacity is None or self._capacity.compete(gang.key, other.key)
