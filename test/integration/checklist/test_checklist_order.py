"""Checklist of the controller, cases 51-57: startup policies and dependencies."""

import pytest

from support.features.checklist_kit import (
    A0,
    ALL,
    B0,
    B1,
    B2,
    NAME,
    RA,
    RB,
    bare_jobset,
    standard_jobset,
)

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

B = [B0, B1, B2]
RC = "replicated-job-c"
C0 = f"{NAME}-{RC}-0"
CS = [f"{NAME}-{RC}-{index}" for index in range(3)]
IN_PROGRESS, COMPLETED = "StartupPolicyInProgress", "StartupPolicyCompleted"
ALL_READY = ((RB, {"ready": 3, "active": 3}), (RA, {"ready": 1, "active": 1}))


async def only(js, *names):
    """Assert that exactly these Jobs exist once the manager has finished its work."""
    await js.until_jobs(*names)
    await js.settled()
    assert await js.job_names() == sorted(names)


async def startup(js):
    """Return if the ordered start is in progress, and if it is completed."""
    found = [await js.condition(kind) for kind in (IN_PROGRESS, COMPLETED)]
    return tuple(item is not None and item[0] == "True" for item in found)


async def start_in_order(js):
    """Simulate an ordered start and check each step."""
    await only(js, A0)
    assert await startup(js) == (True, False)

    await js.ready(A0)
    await only(js, *ALL)
    assert await startup(js) == (True, False)

    await js.activate(*B)
    await js.settled()
    assert await startup(js) == (True, False)

    await js.ready(*B)
    await js.settled()
    assert await startup(js) == (False, True)
    assert await js.counters() == list(ALL_READY)


async def test_case_51_in_order(js):
    """``InOrder`` creates b's Jobs once a's are ready, and completes when b's are."""
    await js.create(standard_jobset().startup_policy("InOrder"))
    await start_in_order(js)


async def test_case_52_in_order_again_after_a_restart(js):
    """A restart begins the order again, once the old Jobs are gone."""
    await js.create(standard_jobset().startup_policy("InOrder").failure_policy(max_restarts=1))
    await start_in_order(js)
    await js.complete(A0)
    await js.fail(B1)
    await js.until_attempts(dict.fromkeys(ALL, 0), terminating=set(ALL))
    await js.collect()

    await start_in_order(js)
    assert await js.attempts() == (dict.fromkeys(ALL, 1), set())
    assert await js.restarts() == (1, 1)


async def test_case_53_depends_on_ready(js):
    """B's Jobs are created when a's is ready."""
    jobset = bare_jobset().replicated_job(RA)
    await js.create(jobset.replicated_job(RB, replicas=3, depends_on={RA: "Ready"}))
    await only(js, A0)

    await js.activate(A0)
    await only(js, A0)

    await js.ready(A0)
    await only(js, *ALL)
    await js.ready(*B)
    await js.until_counters(*ALL_READY)


async def test_case_54_depends_on_a_chain(js):
    """Each ReplicatedJob waits for the previous one: complete for b, ready for c."""
    await js.create(
        bare_jobset()
        .replicated_job(RA)
        .replicated_job(RB, depends_on={RA: "Complete"})
        .replicated_job(RC, replicas=3, depends_on={RB: "Ready"})
    )
    await only(js, A0)

    await js.ready(A0)
    await only(js, A0)

    await js.complete(A0)
    await only(js, A0, B0)

    await js.ready(B0)
    await only(js, A0, B0, *CS)

    await js.complete(B0, *CS)
    await js.until_completed()
    await js.until_counters((RC, {"succeeded": 3}), (RB, {"succeeded": 1}), (RA, {"succeeded": 1}))


def of_both(a_status, b_status):
    """Return a JobSet whose c depends on a and b."""
    dependencies = {RA: a_status, RB: b_status}
    return (
        bare_jobset()
        .replicated_job(RA)
        .replicated_job(RB)
        .replicated_job(RC, replicas=3, depends_on=dependencies)
    )


async def test_case_55_depends_on_two_complete(js):
    """C's Jobs are created when both a's and b's are complete."""
    await js.create(of_both("Complete", "Complete"))
    await only(js, A0, B0)

    await js.complete(A0)
    await only(js, A0, B0)

    await js.complete(B0)
    await only(js, A0, B0, *CS)
    await js.complete(*CS)
    await js.until_completed()
    await js.rests()


async def test_case_56_depends_on_ready_and_complete(js):
    """Dependencies may have different statuses; c waits for both."""
    await js.create(of_both("Ready", "Complete"))
    await only(js, A0, B0)

    await js.ready(A0, B0)
    await only(js, A0, B0)

    await js.complete(B0)
    await only(js, A0, B0, *CS)


async def test_case_57_depends_on_while_suspended(js):
    """While suspended, only Jobs without dependencies are created; then the order continues."""
    jobset = bare_jobset().replicated_job(RA).suspend()
    await js.create(jobset.replicated_job(RB, replicas=3, depends_on={RA: "Ready"}))
    await only(js, A0)
    assert await js.suspended_jobs() == [A0]

    await js.suspend(on=False)
    await js.until_suspended_jobs()
    await only(js, A0)

    await js.ready(A0)
    await only(js, *ALL)
    assert await js.suspended_jobs() == []
    await js.ready(*B)
    await js.until_counters(*ALL_READY)
