"""How often a status is written in which nothing but counters has changed.

Each write goes whole to every agent of a JobSet that restarts in place, and counters change all the
time while thousands of pods come and go. So they wait for each other, the longer the more agents
there are; while a restart is under way they wait for its end. Whatever else the status says waits
for nothing.
"""

from __future__ import annotations

from typing import Final

import attrs

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.membership import pods_of

PAUSES_PER_RESTART: Final = 30
"""A restart that takes longer than so many pauses does not hide the counters until its end."""


@attrs.frozen(kw_only=True)
class CounterPace:
    """What bounds the writes.

    Args:
        every_s: the least time between two of them, in seconds.
        agent_events_per_s: how often agents may be told a second, over all agents of a JobSet; 0
            for no limit.
    """

    every_s: float = 0.0
    agent_events_per_s: float = 0.0

    def pause_s(self, jobset: JobSet) -> float:
        """How long counters wait after the write before, in seconds."""
        pause_s = self.every_s
        if self.agent_events_per_s > 0:
            pause_s = max(pause_s, agents_of(jobset) / self.agent_events_per_s)
        return pause_s * PAUSES_PER_RESTART if is_restarting(jobset) else pause_s


def agents_of(jobset: JobSet) -> int:
    """How many agents watch a JobSet: one in each pod of one that restarts in place."""
    if not jobset.spec.restarts_in_place:
        return 0
    return pods_of(jobset)


def is_restarting(jobset: JobSet) -> bool:
    """Whether a restart in place is under way: the last epoch is over, and the next not begun."""
    status = jobset.status
    return (
        0 < status.synced_epoch <= status.deprecated_epoch
        and jobset.spec.restarts_in_place
        and jobset.spec.suspend is not True
        and cond.finished(status.conditions) is None
    )
