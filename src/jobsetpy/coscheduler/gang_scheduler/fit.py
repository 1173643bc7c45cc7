"""Questions about the capacity for a gang."""

from __future__ import annotations

from collections.abc import Iterable

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

    def fits(self, gang: TrackedGang) -> bool | None:
        """Return whether a gang may fit or is to be tried anyway; ``None`` if not known yet."""
        return self.counted(gang) if gang.info().needs_capacity else True

    def counted(self, gang: TrackedGang) -> bool | None:
        """Return whether a gang may fit; ``None`` if not known yet."""
        return True if self._capacity is None else self._capacity.fits(gang.key, gang.missing)

    def ever_fits(self, gang: TrackedGang) -> bool | None:
        """Return :meth:`counted` for a cluster without other pods."""
        return True if self._capacity is None else self._capacity.ever_fits(gang.key, gang.missing)

    def would_free_enough(self, gang: TrackedGang, others: Iterable[TrackedGang]) -> bool:
        """Return whether a gang may fit only if others gave up their reservations."""
        if self._capacity is None:
            return True
        if not gang.lacks_a_node and self.fits(gang):
            return False
        keys = [other.key for other in others]
        return self._capacity.fits_without(gang.key, gang.missing, keys) is not False

    def may_share_nodes(self, gang: TrackedGang, other: TrackedGang) -> bool:
        """Return whether pods of two gangs may be placed on the same node."""
        return self._capacity is None or self._capacity.compete(gang.key, other.key)
