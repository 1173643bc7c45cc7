"""Minimum interval between status writes in which only counters have changed.

Each write is sent in full to every agent of a JobSet that restarts in place, and counters change
constantly while thousands of pods come and go. So these writes are spaced out, in proportion to the
number of agents; during a restart they wait until its end. All other status changes are written
immediately.
"""

from __future__ import annotations

from typing import Final

import attrs

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.membership import pods_of

PAUSES_PER_RESTART: Final = 30
"""Number of pauses after which a restart that is still in progress no longer delays counters."""


@attrs.frozen(kw_only=True)
class CounterPace:
    """Limits on the rate of counter writes.

    Args:
        every_s: minimum interval between two writes, in seconds.
        agent_events_per_s: maximum number of agents notified per second, over all agents of a
            JobSet; 0 for no limit.
    """

    every_s: float = 0.0
    agent_events_per_s: float = 0.0

    def pause_s(self, jobset: JobSet) -> float:
        """Return the minimum time since the previous counter write, in seconds."""
        pause_s = self.every_s
        if self.agent_events_per_s > 0:
            agents = pods_of(jobset) if jobset.spec.restarts_in_place else 0  # one for each pod
            pause_s = max(pause_s, agents / self.agent_events_per_s)
        return pause_s * PAUSES_PER_RESTART if is_restarting(jobset) else pause_s


def is_restarting(jobset: JobSet) -> bool:
    """Return whether a restart in place is in progress: between two epochs."""
    status = jobset.status
    return (
        0 < status.synced_epoch <= status.deprecated_epoch
        and jobset.spec.restarts_in_place
        and jobset.spec.suspend is not True
        and cond.finished(status.conditions) is None
    )
