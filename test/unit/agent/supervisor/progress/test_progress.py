"""Meaning of a worker's progress file, and detection of hangs, in virtual time."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from jobsetpy.agent.protocol.settings import ConfigurationError
from jobsetpy.agent.supervisor.progress.progress import (
    POLL_S,
    Idle,
    Progress,
    ProgressRules,
    Steps,
    StepTimes,
    _make_empty,
    load,
)
from jobsetpy.api.agent_reports import MAX_STEP
from jobsetpy.api.worker_reports import parse_progress
from support.agents.agent_process import AgentLog

pytestmark = pytest.mark.looptime

GARBAGE = "the progress file is no step"
HUGE = "the progress file is too large for a step"
BACKWARDS = "the progress file has gone backwards"
GONE = "the progress file cannot be read: no hang is noticed until it can"


@pytest.mark.parametrize(
    ("written", "report", "events"),
    [
        ([], None, []),
        ([b""], "touched", []),
        ([b"0"], "0", []),
        ([b"12\n", b" 13 "], "13", []),
        ([b"12", b""], "12", []),
        ([str(MAX_STEP).encode()], str(MAX_STEP), []),
        ([b"12", b"7", b"8", b"14"], "14", [BACKWARDS]),
        ([b"12", b"loss=0.3", b"\xff\x00", b"-1", b"1e9"], "12", [GARBAGE]),
        ([str(MAX_STEP + 1).encode(), b"9" * 63], "touched", [HUGE]),
        ([b"9" * 64], "touched", [GARBAGE]),
        ([b"x", b"9" * 30, b"5", b"4"], "5", [GARBAGE, HUGE, BACKWARDS]),
    ],
)
def test_highest_step_is_reported(
    written: list[bytes], report: str | None, events: list[str]
) -> None:
    """Content that is not a step counts as a touch, and is logged once."""
    log = AgentLog()
    steps = Steps(log)
    for data in written:
        steps.take(data)

    assert (report, events) == (steps.report, log.events)
    assert report is None or parse_progress(report) is not None


class Run:
    """Run of a worker with a real file, in virtual time."""

    def __init__(self, path: Path, **rules: Any) -> None:
        self.path = path
        self.log = AgentLog()
        self.hung: list[tuple[float, float]] = []
        self.progress = Progress(
            ProgressRules(file=str(path), **rules), log=self.log, on_hung=self._found_hung
        )
        self.progress.started()
        self.began = asyncio.get_running_loop().time()

    def _found_hung(self, seconds: float, origin: str) -> None:
        self.origin = origin
        self.hung.append((seconds, asyncio.get_running_loop().time() - self.began))

    def write(self, text: str) -> None:
        """Write as a worker does; the files' clock does not follow virtual time."""
        self.path.write_text(text)
        stamp = self.path.stat().st_mtime_ns + 1_000_000
        os.utime(self.path, ns=(stamp, stamp))


@pytest.mark.parametrize(
    ("rules", "word", "seconds", "origin"),
    [
        ({"after_s": 40}, "", 40, ""),
        ({"auto": True}, "", 60, "the limit follows from the longest step, 12.0 s"),
        ({"auto": True, "sections": {"save": 50}}, " save", 50, ""),
        (
            {"auto": True},
            " save",
            60,
            "the limit follows from the longest time in section save, 12.0 s",
        ),
    ],
)
async def test_hang_has_the_origin_of_its_limit_when_the_limit_is_automatic(
    tmp_path: Path, rules: dict[str, Any], word: str, seconds: float, origin: str
) -> None:
    """A configured limit needs no explanation; one from observed steps names the longest one."""
    run = Run(tmp_path / "f", **rules)
    for step in range(6):
        run.write(f"{step}{word}")
        await asyncio.sleep(12)
    await asyncio.sleep(300)

    ((limit, _),) = run.hung
    assert limit == pytest.approx(seconds, abs=3)
    assert run.origin.rpartition(", ")[0] == origin.rpartition(", ")[0]


async def test_output_shows_progress_until_the_file_does(tmp_path: Path) -> None:
    """Steps of the output count, and no longer once the worker has written its file."""
    run = Run(tmp_path / "f", after_s=40)
    run.progress.reads_output = True
    for step in (3, 2):
        run.progress.printed(step, "")
        await asyncio.sleep(30)
    assert (run.progress.steps.report, run.log.events) == (
        "3",
        ["the worker's output has gone backwards"],
    )
    run.write("7")
    await asyncio.sleep(30)
    run.progress.printed(99, "")
    await asyncio.sleep(30)

    assert run.progress.steps.report == "7"
    assert [round(at) for _, at in run.hung] == [100]


async def test_automatic_limit_is_long_and_grows_when_only_the_output_shows_progress(
    tmp_path: Path,
) -> None:
    """Programs as they are do not say when they save; a limit that was wrong costs one restart."""
    run = Run(tmp_path / "f", auto=True)
    run.progress.reads_output = True
    for _ in range(2):
        for step in range(5):
            run.progress.printed(step, "")
            await asyncio.sleep(1)
        run.progress.output_known = False
        await asyncio.sleep(900)  # output that was not looked at may have shown progress
        run.progress.output_known = True
        await asyncio.sleep(2000)
        run.progress.started()

    assert [limit for limit, _ in run.hung] == [300, 1500]


@pytest.mark.parametrize(
    ("rules", "writes", "expected"),
    [
        ({"after_s": 30, "first_s": 300}, {100: "1", 120: "2"}, (30, 150)),
        ({"after_s": 30, "first_s": 300}, {}, (300, 300)),
        ({"after_s": 30, "first_s": 0}, {3600: "1"}, (30, 3630)),
    ],
    ids=["after steps", "before the first step", "no limit before the first step"],
)
async def test_hang_is_detected_once_and_in_time(
    tmp_path: Path, rules: dict[str, int], writes: dict[int, str], expected: tuple[int, int]
) -> None:
    """Not before its limit, and at most a second after it.

    Compiling and loading have a limit of their own, or none: one rank may report the steps of all.
    """
    run, (limit, at) = Run(tmp_path / "f", **rules), expected
    now = 0
    for when, text in writes.items():
        await asyncio.sleep(when - now)
        run.write(text)
        now = when
    await asyncio.sleep(at - now - 1)
    assert run.hung == []
    await asyncio.sleep(500)

    ((seconds, found),) = run.hung
    assert seconds == limit
    assert at <= found <= at + 1
    assert run.progress.steps.report == (list(writes.values()) or [None])[-1]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_any_user_may_write_to_the_file_under_any_umask(tmp_path: Path, umask: int) -> None:
    """gosu and setpriv start programs as another user; an existing file is emptied."""
    path = tmp_path / "f"
    before = os.umask(umask)
    try:
        _make_empty(str(path))
        assert path.stat().st_mode & 0o777 == 0o666
        path.write_text("7")
        path.chmod(0o600)
        _make_empty(str(path))
    finally:
        os.umask(before)

    assert (path.stat().st_mode & 0o777, path.read_text()) == (0o666, "")


async def test_touch_is_progress(tmp_path: Path) -> None:
    """A worker that only touches the file is alive."""
    run = Run(tmp_path / "f", after_s=2, first_s=2)
    for second in range(20):
        os.utime(run.path, (second, second))
        await asyncio.sleep(1)

    assert run.hung == []
    assert run.progress.steps.report == "touched"


async def test_watch_is_paused_while_the_file_is_unusable(tmp_path: Path) -> None:
    """The log has one line, and the worker continues; a file that is written again is watched."""
    run = Run(tmp_path / "f", after_s=2, first_s=2)
    run.path.unlink()
    await asyncio.sleep(100)
    run.path.mkdir()
    await asyncio.sleep(100)
    run.path.rmdir()
    assert (run.hung, run.log.events) == ([], [GONE])
    os.mkfifo(run.path)
    await asyncio.sleep(100)
    run.path.unlink()
    assert (run.hung, run.log.events) == ([], [GONE])
    run.write("5")
    await asyncio.sleep(100)

    assert ([limit for limit, _ in run.hung], run.progress.steps.step) == ([2], 5)


async def test_pace_is_unknown_while_the_file_cannot_be_read(tmp_path: Path) -> None:
    """Neighbours would otherwise see a stalled worker; known steps count again with the file."""
    run = Run(tmp_path / "f", paced=True)

    async def steps_after(seconds: float) -> int:
        await asyncio.sleep(seconds)
        return len(run.progress.pace()[1])

    for step in range(5):
        run.write(str(step))
        assert await steps_after(1) == step
    run.path.unlink()
    assert await steps_after(1) == 0
    run.write("5")
    assert await steps_after(1) == 5
    run.path.unlink()
    run.path.mkdir()
    run.progress.ended()
    run.progress.started()
    assert await steps_after(1) == 0


async def test_worker_is_never_hung_when_its_file_cannot_be_made(tmp_path: Path) -> None:
    """The log has one line, not one for each start."""
    run = Run(tmp_path / "no" / "f", after_s=2, first_s=2)
    run.progress.started()
    await asyncio.sleep(100)
    run.progress.ended()

    assert (run.hung, len(run.log.events)) == ([], 1)


async def test_worker_that_has_ended_is_not_hung(tmp_path: Path) -> None:
    """Its last step is read, and the next worker starts with an empty file."""
    run = Run(tmp_path / "f", after_s=2, first_s=2)
    run.write("7")
    run.progress.ended()
    await asyncio.sleep(100)
    assert (run.hung, run.progress.steps.report) == ([], "7")

    run.progress.started()
    assert (run.path.read_text(), run.progress.steps.report) == ("", None)
    run.progress.stop()


async def test_file_is_read_until_the_first_step_when_there_is_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read less and less often; after the first step there is no timer."""
    run = Run(tmp_path / "f")
    looks: list[float] = []
    look = run.progress._changed
    monkeypatch.setattr(
        run.progress, "_changed", lambda: looks.append(asyncio.get_running_loop().time()) or look()
    )
    await asyncio.sleep(1000)
    assert None is run.progress.first
    assert len(looks) < 500
    run.write("8")
    await asyncio.sleep(11)
    step, seconds = run.progress.first.split()  # type: ignore[union-attr]
    assert (step, 1000 <= float(seconds) <= 1011) == ("8", True)
    run.write("x")
    await asyncio.sleep(1000)
    assert run.log.events == []
    run.write("9")
    run.progress.ended()

    assert ([], "9", step) == (run.hung, run.progress.steps.report, "8")


def test_paused_container_is_not_hung() -> None:
    """Time in which the agent did not run does not count."""
    idle = Idle(ProgressRules(file="/f", after_s=30, first_s=30), 0.0)
    assert not any(idle.look(second * POLL_S, progress=False) for second in range(100))
    assert not idle.look(3600.0, progress=False)
    looks = [idle.look(3600.0 + second * POLL_S, progress=False) for second in range(1, 30)]

    assert looks[-1]
    assert not looks[0]


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"HANG_SECONDS": "0"}, "HANG_SECONDS must be an integer from 1 to 604800: '0'"),
        ({"HANG_SECONDS": "1.5"}, "HANG_SECONDS must be"),
        ({"HANG_SECONDS": "9" * 5000}, "HANG_SECONDS must be"),
        ({"HANG_SECONDS": "0000001" + "9" * 10}, "HANG_SECONDS must be"),
        ({"HANG_SECONDS": "5", "HANG_FIRST_SECONDS": "x"}, "HANG_FIRST_SECONDS must be"),
        ({"HANG_FIRST_SECONDS": "5"}, "HANG_FIRST_SECONDS has no effect without HANG_SECONDS"),
    ],
)
def test_invalid_settings_are_refused(environ: dict[str, str], message: str) -> None:
    """The error names the variable."""
    with pytest.raises(ConfigurationError) as error:
        load(environ, "/f")
    assert str(error.value).startswith(message)


def test_first_progress_has_no_limit_by_default() -> None:
    """A limit for steps does not set one for it."""
    assert ProgressRules(file="/f") == load({}, "/f")
    assert ProgressRules(file="/f", after_s=30, first_s=0) == load({"HANG_SECONDS": "30"}, "/f")
    both = {"HANG_SECONDS": "30", "HANG_FIRST_SECONDS": "40"}
    assert ProgressRules(file="/f", after_s=30, first_s=40) == load(both, "/f")


def looks(idle: Idle, start: float, seconds: float) -> float | None:
    """Return when a worker without progress is found hung, after a start and within some seconds."""
    now = start
    while now < start + seconds:
        now += 0.25
        if idle.look(now, progress=False):
            return now - start
    return None


def test_section_has_its_own_limit() -> None:
    """The next progress ends the section."""
    rules = ProgressRules(file="/f", after_s=10, sections={"checkpoint": 60.0})
    idle = Idle(rules, 0.0)
    idle.look(0.25, progress=True)
    assert idle.limit == (10.0, "")
    idle.look(0.5, progress=True, section="checkpoint")
    assert looks(idle, 0.5, 120.0) == 60.0
    idle.look(200.0, progress=True, section="other")
    assert idle.limit == (10.0, "")


def test_automatic_limit_follows_from_observed_steps() -> None:
    """From the third step it is five times the longest, at least 30 s, separately for each section."""
    log = AgentLog()
    times = StepTimes(log)
    rules = ProgressRules(file="/f", auto=True)
    idle = Idle(rules, 0.0, times)
    now = 0.25
    idle.look(now, progress=True)
    for _ in range(3):
        assert looks(idle, now, 20.0) is None
        assert idle.limit[0] == 0.0
        now += 20.25
        idle.look(now, progress=True)

    assert idle.limit[0] == 5 * 20.25
    idle.look(now + 0.25, progress=True, section="checkpoint")
    assert idle.limit[0] == 0.0
    idle.look(now + 0.5, progress=True)
    assert looks(idle, now + 0.5, 500.0) == 101.25
    assert log.lines == [("limit for hangs", {"seconds": 101.2})]
    assert StepTimes(AgentLog()).limit("")[0] == 0.0


def test_short_steps_have_a_limit_of_thirty_seconds() -> None:
    """A pause of the machine is not a hang."""
    times = StepTimes(AgentLog())
    for _ in range(3):
        times.note("", 0.25)

    assert times.limit("")[0] == 30.0


def test_second_word_of_the_file_is_its_section() -> None:
    """A file with more words has no step."""
    log = AgentLog()
    steps = Steps(log)
    steps.take(b"12 checkpoint\n")
    assert (steps.step, steps.section) == (12, "checkpoint")
    steps.take(b"13\n")
    assert (steps.step, steps.section, log.events) == (13, "", [])
    steps.take(b"14 a b")
    assert (steps.step, steps.section, log.events) == (13, "", [GARBAGE])


def test_sections_and_an_automatic_limit_are_read_from_the_environment() -> None:
    """The rules are those of admission."""
    given = {"HANG_SECONDS": "auto", "HANG_SECTIONS": "checkpoint=600, evaluate=20"}
    found = load(given, "/f")
    assert (found.auto, found.after_s) == (True, 0)
    assert found.sections == {"checkpoint": 600.0, "evaluate": 20.0}
    for wrong in ("checkpoint", "a=0", "a=1,a=2", "a b=1", "a=\u0663", "a=9999999"):
        with pytest.raises(ConfigurationError, match="HANG_SECTIONS"):
            load({"HANG_SECONDS": "5", "HANG_SECTIONS": wrong}, "/f")
    with pytest.raises(ConfigurationError, match="HANG_SECTIONS has no effect"):
        load({"HANG_SECTIONS": "a=1"}, "/f")
