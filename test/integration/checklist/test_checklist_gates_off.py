"""Checklist of the controller, cases 27, 34 and 65: all feature gates off."""

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.reconcilers.rules.features import Features
from support.features.checklist_kit import A0, ALL, B0, B1, RA, bare_jobset, standard_jobset
from support.model_kit import rule

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

FEATURES = Features(restart_job=False, elastic_jobset=False, in_place_restart=False)


async def test_case_27_restart_jobset(js):
    """``RestartJobSet`` works without the gate RestartJob, and sets no label or count of it."""
    jobset = standard_jobset().failure_policy(max_restarts=1, rules=[rule("RestartJobSet")])
    await js.started(jobset)
    await js.fail(A0)
    await js.until_restarts(1, 1)
    await js.restarted(1)
    await js.stays_active()

    assert await js.own_restarts() == {}
    for job in (await js.read_all(Job)).values():
        assert keys.JOB_RESTART_ATTEMPT not in job["metadata"]["labels"]


async def test_case_34_uncounted_restarts(js):
    """Restarts that ignore the maximum continue beyond it without the gate, too."""
    ignoring = rule("RestartJobSetAndIgnoreMaxRestarts")
    await js.started(standard_jobset().failure_policy(max_restarts=1, rules=[ignoring]))
    for attempt, name in enumerate([A0, B0, B1], start=1):
        await js.fail(name)
        await js.until_restarts(attempt, 0)
        await js.restarted(attempt)
        await js.stays_active()

    assert await js.own_restarts() == {}


async def test_case_65_no_resize(js):
    """Running Jobs keep their size, even when the spec changes.

    The webhook, which does not run here, would refuse the change of the spec.
    """
    await js.create(bare_jobset().replicated_job(RA, parallelism=2))
    await js.until_jobs(A0)
    await js.replace_templates(
        lambda item: item["template"]["spec"].update(parallelism=4, completions=4)
    )
    await js.settled()

    spec = (await js.read(Job, A0))["spec"]
    assert (spec["parallelism"], spec["completions"]) == (2, 2)


async def test_restart_job_needs_its_gate(js):
    """Beyond the cases: the action of a gate that is off is reported once and not executed.

    The failure is kept until the JobSet or its Jobs change, instead of endless retries.
    """
    jobset = standard_jobset().failure_policy(max_restarts=1, rules=[rule("RestartJob")])
    await js.started(jobset)
    await js.fail(A0)

    async def reported() -> None:
        events = await js.events("FailurePolicyNotApplicable")
        assert len(events) == 1
        assert "RestartJob needs the feature gate RestartJob" in events[0]["note"]

    await js.until(reported)
    await js.stays_active()
    assert await js.restarts() == (0, 0)
    assert await js.attempts() == (dict.fromkeys(ALL, 0), set())
