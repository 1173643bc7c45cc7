"""From the kill of one rank until all ranks of a real PyTorch training step again, three ways.

DDP over gloo, with PyTorch from Debian (unpacked, not installed), on this machine: one real
supervisor with all ranks as its processes, without and with standbys, and torchrun's own elastic
restart. The controller's part is played: an epoch is synced as soon as the agent has come to it.
What kubelets and the manager add is measured by ``real_pods``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from bench.common import say, spread, table
from hack.images.torch_packages import PYTHON, torch_environment  # type: ignore[import-not-found]
from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.testing import FakeApiServer, make_jobset, make_pod
from support import patience

MODES = ("torchrun", "supervisor", "standby")
WORKER = Path(__file__).with_name("training_worker.py")
SETTLE_S = 3.0


@attrs.frozen
class Round:
    """One failure: seconds from it until the last rank had come there."""

    began: float
    joined: float
    stepping: float


@attrs.define
class Training:
    """One training, its folder, and what its supervisor has logged."""

    folder: Path
    ranks: int
    lines: list[dict[str, Any]] = attrs.field(factory=list)

    def runs(self) -> list[dict[str, Any]]:
        """All runs of all ranks that have come to their first step."""
        texts = (path.read_text() for path in self.folder.glob("runs-*"))
        lines = [line for text in texts for line in text.splitlines()]
        return [json.loads(line) for line in lines if line.endswith("}")]

    async def stepping(self, since: float) -> list[dict[str, Any]]:
        """The runs whose first step came after a moment, once each rank has one."""
        async with patience.timeout(120):
            while True:
                found = {run["rank"]: run for run in self.runs() if run["at"] > since}
                if len(found) == self.ranks:
                    return list(found.values())
                await asyncio.sleep(0.01)

    async def standbys(self) -> None:
        """Until each rank that runs has a standby that is ready."""
        async with patience.timeout(120):
            while True:
                ready = sum(line["event"] == "standby ready" for line in self.lines)
                taken = sum("standby" in line for line in self.lines)
                if ready - taken >= self.ranks:
                    return
                await asyncio.sleep(0.05)

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Collect the supervisor's log."""
        async for line in stream:
            with suppress(ValueError):
                self.lines.append(json.loads(line))


def free_port() -> int:
    """A port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def account(folder: Path) -> ssl.SSLContext:
    """A service account's folder, and the API server's side of it."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-x509"]
    names = ["-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "api.key"), "-out", str(folder / "ca.crt")]
    subprocess.run(["openssl", "req", *curve, *names, *files], check=True, capture_output=True)
    (folder / "token").write_text("pod-token")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "ca.crt", folder / "api.key")
    return context


@asynccontextmanager
async def supervised(training: Training, *, standby: bool) -> AsyncIterator[None]:
    """Run the training under a supervisor; the controller is played."""
    folder = training.folder
    async with FakeApiServer(tls=account(folder), token="pod-token") as server:
        server.register(JobSet.RESOURCE)
        server.create(JobSet.RESOURCE, make_jobset("js").in_place_restart().build())
        server.create("pods", make_pod("p-0").build())
        own = {
            "NAMESPACE": "default",
            "POD_NAME": "p-0",
            "JOBSET_NAME": "js",
            "ARRIVAL_FILE": str(folder / "arrival"),
            "SERVICE_ACCOUNT_DIR": str(folder),
            "WORKER_PROCESSES": str(training.ranks),
            "WORKER_WORLD_SIZE": str(training.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
        if standby:
            own["WORKER_PRELOAD"] = "torch,torch.distributed,torch.nn.parallel"
            own["WORKER_STANDBY_DELAY_SECONDS"] = "1"
        environ = {f"{keys.AGENT_VARIABLE_PREFIX}{name}": value for name, value in own.items()}
        environ |= {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.port),
            **worker_environment(training),
        }
        # The agent's own Python must not find the worker's libraries: as with the launcher.
        aside = "LD_LIBRARY_PATH"
        environ[f"JOBSETPY_SET_ASIDE_{aside}"] = environ.pop(aside)
        command = [sys.executable, "-I", "-m", "jobsetpy.agent", "supervise", "--"]
        async with running([*command, PYTHON, str(WORKER)], environ, training):

            async def play() -> None:
                while True:
                    pod = server.get("pods", "p-0") or {}
                    notes = pod.get("metadata", {}).get("annotations", {})
                    if epoch := int(notes.get(keys.EPOCH_ANNOTATION, "0")):
                        server.set_status(JobSet.RESOURCE, "js", syncedEpoch=epoch)
                    await asyncio.sleep(0.01)

            async with asyncio.TaskGroup() as group:
                playing = group.create_task(play())
                try:
                    yield
                finally:
                    playing.cancel()


@asynccontextmanager
async def elastic(training: Training) -> AsyncIterator[None]:
    """Run the training under torchrun."""
    command = [
        *(PYTHON, "-m", "torch.distributed.run", f"--nproc_per_node={training.ranks}"),
        *("--nnodes=1", "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{free_port()}"),
        *("--rdzv_conf=is_host=true", "--max_restarts=100", "--monitor_interval=0.2"),
        *("--redirects=0:1", "--tee=0:2", f"--log_dir={training.folder}", str(WORKER)),
    ]
    async with running(command, worker_environment(training), training):
        yield


def worker_environment(training: Training) -> dict[str, str]:
    """What a rank finds, in any case."""
    more = {"SHARED": str(training.folder), "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    return torch_environment() | more


@asynccontextmanager
async def running(
    command: list[str], environ: dict[str, str], training: Training
) -> AsyncIterator[None]:
    """Run a command in a PID namespace of its own, which ends with it."""
    first = ["unshare", "--pid", "--mount-proc", "--kill-child", "--fork"]
    process = await asyncio.create_subprocess_exec(
        *first, *command, env=environ, stderr=asyncio.subprocess.PIPE, cwd=training.folder
    )
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(training.read(process.stderr))
            try:
                yield
            finally:
                reading.cancel()
    finally:
        process.kill()
        await process.wait()


def kill_rank(training: Training, inner: int) -> float:
    """SIGKILL for a rank that is known by its number in its namespace; when."""
    mark = f"SHARED={training.folder}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            numbers = (folder / "status").read_text().partition("NSpid:")[2].split("\n")[0].split()
            if numbers[-1] != str(inner) or mark not in (folder / "environ").read_bytes():
                continue
            moment = time.time()
            os.kill(int(folder.name), signal.SIGKILL)
            return moment
    raise LookupError("the rank does not run")


async def measure(mode: str, ranks: int, rounds: int) -> list[Round]:
    """Failures of one training, one after the other."""
    done: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="training-") as place:
        training = Training(Path(place), ranks)
        way = elastic(training) if mode == "torchrun" else None
        async with way or supervised(training, standby=mode == "standby"):
            current = await training.stepping(0)
            say(f"{mode}: {ranks} ranks step")
            for number in range(rounds):
                if mode == "standby":
                    await training.standbys()
                await asyncio.sleep(SETTLE_S)
                victim = max(current, key=lambda run: run["rank"])
                moment = kill_rank(training, victim["pid"])
                current = await training.stepping(moment)
                phases = [
                    max(r[key] for r in current) - moment for key in ("began", "joined", "at")
                ]
                done.append(Round(*phases))
                said = ", ".join(f"{phase:.2f}" for phase in phases)
                say(f"{mode}, round {number + 1}: {said} s")
    return done


def picture(results: dict[str, list[Round]], ranks: int) -> str:
    """Bars: the median of each way."""
    middle = {
        mode: statistics.median(each.stepping for each in found) for mode, found in results.items()
    }
    bars = []
    for number, (mode, seconds) in enumerate(middle.items()):
        y, width = 40 + number * 30, max(2.0, 400 * seconds / max(middle.values()))
        color = "#2a7f62" if mode == "standby" else "#8899aa"
        bars.append(
            f'<text x="110" y="{y + 15}" text-anchor="end">{mode}</text>'
            f'<rect x="120" y="{y}" width="{width:.1f}" height="20" fill="{color}"/>'
            f'<text x="{128 + width:.1f}" y="{y + 15}">{seconds:.2f} s</text>'
        )
    title = f"From a killed rank to the next step of all {ranks}: PyTorch, gloo, one machine"
    height = 50 + 30 * len(middle)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="620" height="{height}" '
        f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="12" y="22" font-weight="bold">{title}</text>{"".join(bars)}</svg>\n'
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modes", default=",".join(MODES), help="with commas (%(default)s)")
    parser.add_argument("--picture", type=Path, help="write a picture (SVG) there")
    options = parser.parse_args()
    modes = options.modes.split(",")
    if unknown := set(modes) - set(MODES):
        raise SystemExit(f"--modes: {', '.join(sorted(unknown))}: none of {', '.join(MODES)}")
    results = {mode: asyncio.run(measure(mode, options.ranks, options.rounds)) for mode in modes}
    rows = []
    for mode, found in results.items():
        aim = "median <= 0.45 s" if mode == "standby" else ""
        rows.append((f"{mode}: all step again", spread([r.stepping for r in found], " s"), aim))
        rows.append(("  imported, or released", spread([r.began for r in found], " s"), ""))
        rows.append(("  joined", spread([r.joined for r in found], " s"), ""))
    table(f"One of {options.ranks} ranks is killed, {options.rounds} rounds: min / med / max", rows)
    if options.picture:
        options.picture.write_text(picture(results, options.ranks))


if __name__ == "__main__":
    main()
