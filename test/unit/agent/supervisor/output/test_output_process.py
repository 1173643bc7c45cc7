"""The worker's output through the agent, with real processes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from jobsetpy.api import keys
from support.agents.agent_process import Pod
from support.patience import eventually

STEPS = """import sys, time
print("started")
for step in range(1, 6):
    print(f"loss=0.{step} step={step}")
sys.stdout.flush()
time.sleep(300)
"""
NOISE = """import os, random, sys
epoch = int(os.environ["JOBSET_EPOCH"])
noise = random.Random(epoch).randbytes(2_000_000) + b"x" * 10_000_000 + bytes([epoch, 10, 13])
sys.stdout.buffer.write(noise)
sys.stdout.buffer.flush()
os._exit(9 if epoch == 4 else 7)
"""


def rules(*each: dict[str, object]) -> str:
    """Return rules as admission writes them."""
    return json.dumps(each)


async def test_hang_is_found_from_the_output_when_the_worker_writes_no_file(pod: Pod) -> None:
    """The worker prints steps and stops; the cause names the limit and the step."""
    pod.environ |= {"PROGRESS_PATTERN": r"step[ =:]+(\d+)", "HANG_SECONDS": "2"}
    async with pod.run(sys.executable, "-c", STEPS) as agent:
        await agent.started(1)
        await pod.at(2)
        assert pod.annotations[keys.RESTART_CAUSE_ANNOTATION] == "no-progress=2"
        assert pod.annotations[keys.PROGRESS_ANNOTATION] == "5"
        assert (await agent.logged("the output shows progress"))["pattern"] == "progress-pattern"


async def test_no_byte_is_lost_when_a_worker_prints_much_and_crashes(
    pod: Pod, tmp_path: Path
) -> None:
    """Binary output, a line of 10 MB, and several workers; patterns see it, and change nothing."""
    pod.environ |= {"PROGRESS_PATTERN": "auto", "END_POD_EXIT_CODES": "9"}
    out = tmp_path / "out"
    os.mkfifo(out)
    reading = asyncio.create_task(asyncio.to_thread(out.read_bytes))
    first = ["sh", "-c", f'exec "$@" >{out}', "_"]
    async with pod.run(sys.executable, "-c", NOISE, first=first) as agent:
        for epoch in (1, 2, 3, 4):
            await pod.lift(epoch)
        assert await agent.exit_code() == 9
    noise = (random.Random(epoch).randbytes(2_000_000) for epoch in (1, 2, 3, 4))
    ends = (b"x" * 10_000_000 + bytes([epoch, 10, 13]) for epoch in (1, 2, 3, 4))
    expected = b"".join(each + end for each, end in zip(noise, ends, strict=True))
    assert hashlib.sha256(await reading).digest() == hashlib.sha256(expected).digest()


@pytest.mark.parametrize("mode", ["direct", "piped"])
async def test_crash_output_is_complete_when_the_pod_ends(pod: Pod, mode: str) -> None:
    """The last lines of both streams are there, with and without pipes."""
    if mode == "piped":
        pod.environ |= {"PROGRESS_PATTERN": "auto"}
    script = "import sys; [print(n) for n in range(20000)]; sys.exit('last words')"
    async with pod.run(sys.executable, "-c", script, END_POD_EXIT_CODES="1") as agent:
        await pod.lift(1)
        assert await agent.exit_code() == 1
    assert agent.out == [str(n) for n in range(20000)]


LOUD = """import sys, time
print("started")
print("CUDA error: device-side assert", flush=True)
for _ in range(3):
    print("loss=nan", file=sys.stderr, flush=True)
time.sleep(0.3)
print("the rest", flush=True)
time.sleep(300)
"""
CUDA = {"name": "cuda", "line": "(CUDA error.*)"}
NAN = {"name": "nan", "line": r"loss=(\S+)", "number": "finite", "lines": 3}
SILENT = {"name": "alive", "line": "alive", "within": 1}
QUIET = {"name": "quiet", "line": "quiet", "within": 1, "then": "report"}


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ([CUDA], "log-rule=1 cuda: CUDA error: device-side assert"),
        ([NAN], "log-rule=1 nan: loss=nan"),
        ([SILENT], "log-rule=1 alive: no line within 1 s"),
        # One that reports again and again does not hold up the others.
        ([QUIET, {**SILENT, "within": 3}], "log-rule=1 alive: no line within 3 s"),
        ([{**NAN, "then": "fail-jobset"}], "log-rule=1 nan: loss=nan"),
    ],
)
async def test_worker_restarts_with_rule_as_cause_when_rule_is_broken(
    pod: Pod, given: list[dict[str, object]], cause: str
) -> None:
    """The next worker starts; what a failing one still prints is there."""
    async with pod.run(sys.executable, "-c", LOUD, LOG_RULES=rules(*given)) as agent:
        await pod.lift(1)  # the rule may apply before the worker prints its first line
        await pod.at(2)
        assert pod.annotations[keys.RESTART_CAUSE_ANNOTATION] == cause
        if given == [CUDA]:
            await agent.printed("the rest")
        await pod.lift(2)
        await eventually(lambda: agent.logs("worker started") >= 2)


@pytest.mark.parametrize(
    ("then", "code", "annotation", "text"),
    [
        ("end-pod", keys.LOG_RULE_EXIT_CODE, keys.RESTART_CAUSE_ANNOTATION, "log-rule=1 "),
        ("unfit-node", keys.UNFIT_EXIT_CODE, keys.AGENT_STATE_ANNOTATION, "unfit: "),
    ],
)
async def test_pod_ends_with_reason_when_rule_says_so(
    pod: Pod, then: str, code: int, annotation: str, text: str
) -> None:
    """The reason is stored before the container ends."""
    async with pod.run(
        sys.executable, "-c", LOUD, LOG_RULES=rules({**CUDA, "then": then})
    ) as agent:
        await pod.lift(1)
        assert await agent.exit_code() == code
    assert pod.annotations[annotation] == f"{text}cuda: CUDA error: device-side assert"


@pytest.mark.parametrize(
    ("then", "text"), [("restart", "log-rule=1 xid: Xid 79"), ("unfit-node", "unfit: xid: Xid 79")]
)
async def test_last_line_counts_when_the_worker_crashes_right_after_it(
    pod: Pod, then: str, text: str
) -> None:
    """Its step and its reason are reported, although the process has ended before they are read."""
    script = "import os; os.write(1, b'step=7\\nXid 79'); os.write(1, b'\\n'); os._exit(1)"
    pod.environ |= {
        "PROGRESS_PATTERN": "step=([0-9]+)",
        "LOG_RULES": rules({"name": "xid", "line": "Xid [0-9]+", "then": then}),
    }
    async with pod.run(sys.executable, "-c", script) as agent:
        await pod.lift(1)
        if then == "restart":
            await pod.at(2)
            assert pod.annotations[keys.PROGRESS_ANNOTATION] == "7"
            assert pod.annotations[keys.RESTART_CAUSE_ANNOTATION] == text
        else:
            assert await agent.exit_code() == keys.UNFIT_EXIT_CODE
            assert pod.annotations[keys.AGENT_STATE_ANNOTATION] == text


async def test_worker_continues_when_rule_only_reports(pod: Pod) -> None:
    """The line is in an annotation, for an event of the manager, until the next run."""
    async with pod.run(
        sys.executable, "-c", LOUD, LOG_RULES=rules({**CUDA, "then": "report"})
    ) as agent:
        await agent.started(1)
        await eventually(
            lambda: (
                pod.annotations.get(keys.LOG_REPORT_ANNOTATION)
                == "cuda: CUDA error: device-side assert"
            )
        )
        await agent.printed("the rest")
        assert pod.epoch == "1"
        pod.status(deprecatedEpoch=1)
        await pod.at(2)
        assert keys.LOG_REPORT_ANNOTATION not in pod.annotations


async def test_output_is_whole_when_the_matching_process_is_killed_or_stuck(pod: Pod) -> None:
    """It is started again; a pattern that never ends costs neither a line nor the worker's time."""
    script = """import os, time
print("started", os.environ["JOBSET_EPOCH"], flush=True)
for number in range(40):
    print("a" * 30 + "!", number, flush=True)
    time.sleep(0.05)
print("step=7", flush=True)
time.sleep(300)
"""
    pod.environ |= {
        "PROGRESS_PATTERN": "step=([0-9]+)",
        "LOG_RULES": rules({"name": "stuck", "line": "(a+)+$"}),
    }
    async with pod.run(sys.executable, "-c", script) as agent:
        await agent.started(1)
        children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children")
        matching = int(children.read_text().split()[0])
        await agent.logged("a pattern takes too long and is no longer used: stuck")
        text = "stuck: its pattern takes too long, and is no longer used"
        await eventually(lambda: pod.annotations.get(keys.LOG_REPORT_ANNOTATION) == text)
        os.kill(matching, signal.SIGKILL)
        await agent.logged("the matching process has ended, and is started again")
        await agent.printed("step=7")
        assert agent.out[1:-1] == [f"{'a' * 30}! {number}" for number in range(40)]


FLOOD = """import os, sys, time
while not os.path.exists(sys.argv[1]):
    os.write(1, b"loss=0.3 " * 11000 + b"\\n")
for step in range(1, 100000):
    print(f"step={step}", flush=True)
    time.sleep(0.05)
"""


async def test_lines_are_matched_again_when_a_flood_is_over(pod: Pod, tmp_path: Path) -> None:
    """Output that is dropped meanwhile is of the flood: the steps after it are seen."""
    # A pattern that tries each letter: an idle machine finds plain text as fast as it is printed.
    pod.environ |= {"PROGRESS_PATTERN": "[a-z =]*step=([0-9]+)"}
    first, over = ["sh", "-c", 'exec "$@" >/dev/null', "_"], tmp_path / "over"
    async with pod.run(sys.executable, "-c", FLOOD, str(over), first=first) as agent:
        await pod.lift(1)
        await agent.logged("a part of the output is not matched: there is too much of it")
        over.touch()
        await agent.logged("the output shows progress")


TERMINAL = """import os, pty, sys
ours, theirs = pty.openpty()
os.set_inheritable(ours, True)
os.dup2(theirs, 1)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("first", "code", "why"),
    [
        (["sh", "-c", 'exec "$@" >&-', "_"], 1, "standard output is closed"),
        ([sys.executable, "-c", TERMINAL], 9, "standard output is a terminal"),
    ],
)
async def test_stream_is_as_before_when_it_is_closed_or_a_terminal(
    pod: Pod, first: list[str], code: int, why: str
) -> None:
    """The worker sees what it saw without the agent, and the agent says that it does not read."""
    script = "import os, sys; sys.exit(9 if os.isatty(1) else os.fstat(1) and 3)"
    pod.environ |= {"PROGRESS_PATTERN": "auto", "END_POD_EXIT_CODES": "1,3,9"}
    async with pod.run(sys.executable, "-c", script, first=first) as agent:
        await pod.lift(1)
        assert await agent.exit_code() == code
        line = await agent.logged("an output stream is not read")
    assert line["why"] == why
