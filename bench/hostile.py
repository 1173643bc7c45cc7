"""Longest block of the loop by the largest objects that etcd accepts; no cluster, CPU time.

Objects of up to 1.5 MB, each of an expensive shape (``support.admission.hostile``), are passed to
both admission handlers, as a creation and an update, and to all planners of JobSets. Measured is
the longest part between two turns of the loop, in CPU time of all threads. The ratio is that to an
object of half the size: 2 is linear, 4 is quadratic.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import gc
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any, cast

from rich.table import Table

from bench.common import console
from jobsetpy.admission import WebhookSettings
from jobsetpy.admission._handlers import JobSetHandlers
from jobsetpy.app.garbage import young_only
from jobsetpy.client import Client
from jobsetpy.errors import NotFoundError
from jobsetpy.reconcilers.coscheduling.plan import GangMemory, ObservedGangs, plan_coscheduling
from jobsetpy.reconcilers.jobs.plan import ObservedJobSet, plan_jobs
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.plan import JobsMemory
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.reconcilers.startup_groups.ledger import StartLedger
from jobsetpy.reconcilers.startup_groups.plan import GroupMemory, ObservedGroup, plan_startup_group
from jobsetpy.serving.review import ReviewRequest
from support.admission import hostile

Steps = tuple[str, Callable[[], float]]
AIM_MS = 100.0
STATES = ("new", "running", "failed", "first failed", "successful", "suspended")
FEATURES = Features()
NOW = Now(datetime(2026, 1, 1, tzinfo=UTC), 1000.0)


def admitted(operation: str, jobset: hostile.Json, old: hostile.Json | None = None) -> list[Steps]:
    """Both handlers, from the decoded review to the answer."""
    request = ReviewRequest(uid="u", operation=operation, object=jobset, old_object=old)
    settings = WebhookSettings(features=FEATURES, agent_image="agent:1")
    handlers = JobSetHandlers(cast("Client", NoClaims()), settings)
    return [
        (f"{operation}, mutate", lambda: longest_part(handlers.mutate(request))),
        (f"{operation}, validate", lambda: longest_part(handlers.validate(request))),
    ]


class NoClaims:
    """A client that finds nothing."""

    async def get(self, kind: object, namespace: str, name: str, **more: object) -> object:
        """There is no such volume claim."""
        del kind, namespace, more
        raise NotFoundError(404, "NotFound", name)


def longest_part(handled: Coroutine[Any, Any, object]) -> float:
    """CPU time in milliseconds for which a handler blocks the loop.

    All threads of the process count: large objects are processed in a thread, and the loop waits
    for the interpreter's lock.
    """

    async def run() -> float:
        handling = asyncio.ensure_future(handled)
        longest = 0.0
        while not handling.done():
            began = time.process_time()
            await asyncio.sleep(0)
            longest = max(longest, time.process_time() - began)
        handling.result()
        return longest * 1000

    return asyncio.run(run())


def resumed(jobset: hostile.Json) -> list[Steps]:
    """A JobSet that is resumed, its pods with another node selector."""
    old = copy.deepcopy(jobset)
    old["spec"]["suspend"] = True
    new = copy.deepcopy(jobset)
    for job in new["spec"]["replicatedJobs"]:
        job["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "a"}
    return admitted("UPDATE", new, old)


def planned(seen: ObservedJobSet) -> Callable[[], object]:
    """The planner of Jobs, without earlier observations."""
    return lambda: plan_jobs(seen, JobsMemory(), NOW)


def other_plans(jobset: hostile.Json) -> Iterator[Steps]:
    """The planners of coscheduling, startup groups and restarts in place, with all Jobs running."""
    seen = hostile.observed(jobset, "running")
    gangs = ObservedGangs(key=seen.key, jobset=seen.jobset, jobs=seen.jobs, features=seen.features)
    yield "plan of gangs", timed(lambda: plan_coscheduling(gangs, GangMemory(), NOW))
    group = ObservedGroup(
        key=seen.key, jobset=seen.jobset, ledger=StartLedger(), jobs=lambda: seen.jobs
    )
    yield "plan of group", timed(lambda: plan_startup_group(group, GroupMemory(), NOW))
    epochs = ObservedEpochs(jobset=seen.jobset)
    yield "plan of epochs", timed(lambda: plan_epochs(epochs, EpochState(), NOW))


def timed(call: Callable[[], object]) -> Callable[[], float]:
    return lambda: hostile.cpu_ms(call)


def steps(jobset: hostile.Json) -> Iterator[Steps]:
    """Everything that the loop does with an object; each call returns its longest step in ms."""
    yield from admitted("CREATE", jobset)
    yield from resumed(jobset)
    for state in STATES:
        yield f"plan, {state}", timed(planned(hostile.observed(jobset, state)))
    yield from other_plans(jobset)


def measured(jobset: hostile.Json) -> dict[str, float]:
    """The longest step of each in milliseconds, the minimum of two calls."""
    gc.collect()
    return {name: min(call(), call()) for name, call in steps(jobset)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    known = {maker.__name__: maker for maker in hostile.SIZES}
    parser.add_argument("names", nargs="*", default=list(known), help=f"some of {', '.join(known)}")
    parser.add_argument("--all", action="store_true", help="all steps, not only the slowest ones")
    options = parser.parse_args()
    out = Table(title="Hostile objects: longest steps of the loop", title_justify="left")
    for column in ("object", "number", "MB", "step", "ms", "ratio", f"aim <= {AIM_MS:.0f} ms"):
        out.add_column(column)
    with young_only():
        for name in options.names:
            maker, number = known[name], hostile.SIZES[known[name]]
            jobset = maker(number)
            megabytes = hostile.size_of(jobset) / 1e6
            half, whole = measured(maker(max(1, number // 2))), measured(jobset)
            slowest = max(whole, key=whole.__getitem__)
            for step, ms in whole.items():
                if options.all or step == slowest or ms > AIM_MS:
                    ratio = ms / max(half[step], 0.01)
                    verdict = "" if ms <= AIM_MS else "missed"
                    row = (name, f"{number}", f"{megabytes:.2f}", step, f"{ms:.1f}")
                    out.add_row(*row, f"{ratio:.1f}", verdict)
    console.print(out)


if __name__ == "__main__":
    main()
