"""The worker's output through the agent, with real processes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sys
from pathlib import Path

import pytest

from jobsetpy.api import keys
from support.agents.agent_process import Pod

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
