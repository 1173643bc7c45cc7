"""Cost of one event of the gang scheduler by the number of gangs: function calls, and their ratio.

No cluster. ``n`` gangs are being placed: each has a reservation for one pod and no node for another
one, so that they compete with each other. Then single events are handled, each followed by
everything that is due. Calls are counted, since they do not depend on the speed of the machine; a
ratio near 1 means that the cost does not grow with the number of gangs.

Usage: ``python -m bench.gang_events [--gangs 100 1000 10000]``
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import SeenPod
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey

EVENTS = 20
"""Number of events of each kind; the mean is reported."""


def calls_of(function: Callable[[], object]) -> int:
    """Return the number of function calls, of C functions as well."""
    calls = 0

    def counted(_: FrameType, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


class World:
    """Gang scheduler with gangs that are being placed.

    Args:
        placed: their number.
    """

    def __init__(self, placed: int) -> None:
        self.scheduler = GangScheduler()
        self.now = 0.0
        self.tickets = count(1)
        self.scheduler.pause()
        for at in range(placed):
            self.see(f"p{at}", 0)
            self.see(f"p{at}", 1)
        self.scheduler.resume(self.now)
        for at in range(placed):
            self.hold(f"p{at}", 0)
        for at in range(placed):
            self.scheduler.unschedulable(f"p{at}-1", self.now)
        self.settle()

    def see(self, gang: str, pod: int) -> None:
        """Show a pod to the gang scheduler, new or changed."""
        key, uid = PodGroupKey("bench", gang), f"{gang}-{pod}"
        member = Member(created=float(gang[1:]), min_available=2)
        self.scheduler.seen(SeenPod(group=key, name=uid, uid=uid, member=member), self.now)

    def hold(self, gang: str, pod: int) -> None:
        """Have the scheduler ask for the bind of a pod."""
        self.scheduler.bind_asked(next(self.tickets), f"{gang}-{pod}", self.now)

    def settle(self) -> None:
        """Do all that is due."""
        while True:
            wake = self.scheduler.next_wake(self.now)
            if wake is None or wake > self.now:
                return
            self.scheduler.tick(self.now)

    def cost(self, event: Callable[[int], object]) -> float:
        """Return the mean number of calls for an event and all that is due after it."""
        total = 0
        for at in range(EVENTS):
            total += calls_of(partial(event, at)) + calls_of(self.settle)
        return total / EVENTS

    def costs(self) -> dict[str, float]:
        """Return the costs by kind of event."""
        scheduler = self.scheduler
        return {
            "a new gang": self.cost(lambda at: self.see(f"p{10**6 + at}", 0)),
            "a pod changes": self.cost(lambda at: self.see(f"p{at}", 1)),
            "no node": self.cost(lambda at: scheduler.unschedulable(f"p{at}-1", self.now)),
            "bind request": self.cost(lambda at: self.hold(f"p{at}", 0)),
            "request lost": self.cost(lambda at: scheduler.bind_cancelled(at + 1, self.now)),
            "a pod is gone": self.cost(lambda at: scheduler.gone(f"p{at + EVENTS}-0", self.now)),
        }


def main() -> None:
    """Print the costs for each number of gangs, and the ratio of the last to the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, nargs="+", default=[100, 1000, 10_000])
    numbers = parser.parse_args().gangs
    table = [World(n).costs() for n in numbers]
    print(f"{'calls per event':32}", *(f"{number:>9}" for number in numbers), "   ratio")
    for what in table[0]:
        row = [costs[what] for costs in table]
        print(f"{what:32}", *(f"{each:9.0f}" for each in row), f"{row[-1] / row[0]:8.2f}")


if __name__ == "__main__":
    main()
