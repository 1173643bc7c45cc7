"""Output of a worker through the agent's pipes: throughput, and bytes that arrive.

The agent is started as in a pod, against the fake API server, and its standard output is a pipe
that another process reads. Each run of the worker writes its share of lines and crashes. ``direct``
is the agent without a pattern, whose worker writes into the container's pipe itself.

    python -m bench.output --megabytes 10000 --restarts 50

With ``--node`` the output is that of pods on a real node, whose container runtime writes it into a
log line by line, at a fraction of the pipe's speed: ``cat`` of a file, without a pattern and with
one in turn, an eighth of the megabytes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs

from bench.common import say, spread, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy.client import Client
from support.agents.agent_process import served_pod, write_account
from support.patience import eventually
from support.restarts.scenario import (
    build_images,
    managed,
    pod_log_folders,
    run_gang,
    supervised_jobset,
)

WORKER = """import json, os, sys, time
size, times, last, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
epoch = os.environ["JOBSET_EPOCH"]
line = b"%s loss=0.37 lr=0.0001 step=12 %s\\n" % (epoch.encode(), b"x" * 60)
block = line * (size // len(line) + 1)
began = time.monotonic()
for _ in range(times):
    os.write(1, block) == len(block) or sys.exit(3)
with open(path, "a") as file:
    file.write(json.dumps([epoch, len(block) * times, time.monotonic() - began]) + "\\n")
os._exit(9 if epoch == last else 7)
"""
READER = """import hashlib, sys
found, size = hashlib.sha256(), 0
for path in sys.argv[2:]:
    with open(path, "rb", buffering=0) as file:
        while data := file.read(1 << 20):
            size += len(data)
            if sys.argv[1] == "hash":
                found.update(data)
print(size, found.hexdigest())
"""
BLOCK: int = 64 * 1024
PATTERNS: dict[str, str] = {
    "direct": "",
    "pattern": r"step[ =:]+([0-9]+)",
    "auto": "auto",
    "hostile": "(x+x+)+y",
    "rare": "no such line",
}


@attrs.frozen
class Outcome:
    """Figures of one run of the agent."""

    rate: float
    """Megabytes a second, median of the worker's runs."""
    whole: bool
    """True if every byte has arrived, in order."""


async def run(kind: str, megabytes: int, runs: int, *, check: bool) -> Outcome:
    """Run workers that write ``megabytes`` together, one after the other."""
    times = max(1, megabytes * 1_000_000 // runs // BLOCK)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_account(folder)
        out, said = folder / "out", folder / "said"
        os.mkfifo(out)
        reader = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", READER, "hash" if check else "count", str(out)),
            stdout=asyncio.subprocess.PIPE,
        )
        async with served_pod(folder, folder / "arrival") as pod:
            pod.environ |= {"PROGRESS_PATTERN": PATTERNS[kind], "END_POD_EXIT_CODES": "9"}
            first = ["sh", "-c", f'exec "$@" >{out}', "_"]
            words = [sys.executable, "-c", WORKER, str(BLOCK), str(times), str(runs), str(said)]
            async with pod.run(*words, first=first) as agent:
                for epoch in range(1, runs + 1):
                    await pod.lift(epoch)
                await agent.process.wait()
        assert reader.stdout is not None
        size, digest = (await reader.stdout.read()).split()
        await reader.wait()
        lines: list[list[Any]] = [json.loads(line) for line in said.read_text().splitlines()]
    written = sum(each[1] for each in lines)
    rates = [each[1] / 1e6 / each[2] for each in lines]
    whole = int(size) == written and (not check or digest.decode() == _expected(times, runs))
    return Outcome(statistics.median(rates), whole)


def _expected(times: int, runs: int) -> str:
    found = hashlib.sha256()
    for epoch in range(1, runs + 1):
        line = b"%d loss=0.37 lr=0.0001 step=12 %s\n" % (epoch, b"x" * 60)
        block = line * (BLOCK // len(line) + 1)
        for _ in range(times):
            found.update(block)
    return found.hexdigest()


NODE_SCRIPT = """yes 'loss=0.37 lr=0.0001 step=12 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' |
head -c 32000000 >/tmp/block
read began _ </proc/uptime
n=0; while [ $n -lt %d ]; do n=$((n+1)); cat /tmp/block; done
read ended _ </proc/uptime
echo "took $began $ended"  # on standard error it would be in the log before the last output
sleep 1000000 & wait $!"""


async def on_node(client: Client, cluster: Any, kind: str, megabytes: int) -> float:
    """Return the megabytes a second of a pod's output through the container runtime."""
    times = megabytes // 32
    jobset = supervised_jobset(
        f"output-{kind}",
        1,
        command=("sh", "-c", NODE_SCRIPT % times),
        environ={"PROGRESS_PATTERN": PATTERNS[kind]},
    )
    folders = pod_log_folders(cluster)
    async with run_gang(client, jobset, 1, folders) as timeline:
        (name,) = timeline.pods
        files = f"default_{name}_*/worker/*.log*"

        def took() -> re.Match[bytes] | None:
            for path in (path for folder in folders for path in folder.glob(files)):
                with path.open("rb") as file:  # the last lines: the kubelet rotates the files
                    file.seek(max(0, path.stat().st_size - 4096))
                    if found := re.search(rb"took ([0-9.]+) ([0-9.]+)", file.read()):
                        return found
            return None

        found = await eventually(took, seconds=600)
    return times * 32 / (float(found[2]) - float(found[1]))


async def nodes(rounds: int, megabytes: int) -> dict[str, list[float]]:
    """Return the rates of pods on a real node, with patterns and without."""
    rates: dict[str, list[float]] = {"direct": [], "pattern": []}
    with Cluster(name="bench-output", nodes=1, images=build_images()) as cluster:
        async with managed(cluster.kubeconfig) as client:
            for _ in range(rounds):
                for kind, found in rates.items():
                    found.append(await on_node(client, cluster, kind, megabytes))
                    say(f"node, {kind}: {found[-1]:.0f} MB/s")
    return rates


def report(rates: dict[str, list[float]]) -> None:
    """Print the rates, and their part of those without a pattern."""
    direct = statistics.median(rates["direct"])
    table(
        "Throughput of a worker's output",
        [
            (
                f"{kind}, {statistics.median(found) / direct:.2f} of direct",
                spread(found, " MB/s", 0),
                "0.9 of direct",
            )
            for kind, found in rates.items()
        ],
    )


async def main() -> None:
    """Compare throughput, and check every byte of a long output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=10_000)
    parser.add_argument("--restarts", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--each", type=int, default=2000, help="megabytes of each comparison")
    parser.add_argument("--node", action="store_true", help="pods on a real node")
    options = parser.parse_args()
    if options.node:
        report(await nodes(options.rounds, options.each // 8))
        return
    rates: dict[str, list[float]] = {kind: [] for kind in PATTERNS}
    for _ in range(options.rounds):  # in turn, as other work on the machine comes and goes
        for kind in PATTERNS:
            one = await run(kind, options.each, 3, check=False)
            rates[kind].append(one.rate)
            say(f"{kind}: {one.rate:.0f} MB/s, all bytes: {one.whole}")
    report(rates)
    began = time.monotonic()
    one = await run("pattern", options.megabytes, options.restarts + 1, check=True)
    say(
        f"{options.megabytes} MB, {options.restarts} restarts: every byte in order: {one.whole}; "
        f"{time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    asyncio.run(main())
