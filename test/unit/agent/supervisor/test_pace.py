"""Step and speed of a running worker, in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jobsetpy.agent.supervisor import pace
from jobsetpy.agent.supervisor.progress.progress import Progress, ProgressRules
from jobsetpy.api import keys
from support.agents.agent_process import AgentLog

pytestmark = pytest.mark.looptime


def reports(file: Path, *, after_s: float = 0.0) -> tuple[Progress, pace.Pace, list[object]]:
    """Return the progress of a worker, its pace, and what was stored of it."""
    stored: list[object] = []
    rules = ProgressRules(file=str(file), after_s=after_s)
    progress = Progress(rules, log=AgentLog(), on_hung=lambda *_: None)
    made = pace.Pace(progress, AgentLog(), stored.append)
    progress.started()
    made.worker_started()
    return progress, made, stored


@pytest.mark.parametrize("after_s", [0.0, 3600.0])
async def test_step_and_speed_are_stored_once_a_minute(tmp_path: Path, after_s: float) -> None:
    """A step that stays the same is stored once more, and the next run begins without any."""
    file = tmp_path / "progress"
    progress, made, stored = reports(file, after_s=after_s)
    for step in (10, 40, 40, 40):
        file.write_text(str(step))
        await asyncio.sleep(pace.EVERY_S)
    await asyncio.sleep(1)
    progress.stop()
    expected: list[object] = [{keys.PACE_ANNOTATION: text} for text in ("40 0.500", "40 0.000")]

    assert stored == expected
    assert made.annotations() == {keys.PACE_ANNOTATION: None}
    assert made.annotations() == {}


@pytest.mark.parametrize("after_s", [0.0, 300.0])
async def test_missing_steps_are_reported_when_hangs_should_be_detected(
    tmp_path: Path, after_s: float
) -> None:
    """After ten minutes, once, until there is a step; the manager keeps the whole text."""
    file = tmp_path / "progress"
    progress, made, stored = reports(file, after_s=after_s)
    await asyncio.sleep(pace.EVERY_S * pace.NO_STEP_LOOKS + 1)
    told = [{keys.LOG_REPORT_ANNOTATION: pace.NO_STEP}] if after_s else []
    assert stored == told
    file.write_text("1")
    await asyncio.sleep(pace.EVERY_S)
    made.close()
    progress.stop()

    assert stored[1:] == ([{keys.LOG_REPORT_ANNOTATION: None}] if after_s else [])
    assert len(pace.NO_STEP) <= 120


@pytest.mark.parametrize(
    ("name", "first"), [("a-w-0-0-x2x4z", True), ("a-w-1-0-x2x4z", False), ("a", False)]
)
def test_only_the_first_pod_of_a_replicated_job_reports(name: str, first: bool) -> None:
    """Its name has index 0 of the Job and of the pod."""
    assert pace.is_first(name) == first
