"""Time from a killed rank until all ranks step again: real supervisors, frameworks; no cluster.

Ranks are processes on this machine, each under a real supervisor that uses a fake API server; the
controller is simulated. So each framework of a Python on this machine can be measured
(``--python``), such as PyTorch 2 from PyPI, and ways to preload can be compared.

With ``--processes``, a supervisor has several ranks, which it numbers itself, and its command is
that of ``kubectl jobset convert`` for torchrun's; the way ``torchrun`` runs torchrun below the
supervisor.

The way ``log`` gives the program neither a standby nor a progress file: a rank is stopped (SIGSTOP)
in place of killed, which the agents notice in the output alone (``--framework transformers``, or
``lightning`` without the package ``rich``: the progress bar of rank 0).

Rounds of different ways alternate, because other load on the machine varies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from bench.common import ROOT, say, spread
from jobsetpy.api.meta import ResourceInfo
from jobsetpy.reconcilers.restart_in_place.launchers.launchers import translate
from jobsetpy.testing import FakeApiServer, make_jobset, make_pod
from support.agents.training_kit import Training
from support.cluster.manager_process import free_port
from support.cluster.webhooks import write_certificate

EPOCH = "jobset.sigs.k8s.io/epoch"
JOBSETS = ResourceInfo("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
LISTS = {
    "torch": "torch.distributed,torch.nn.parallel",
    "jax": "jax,jax.numpy,numpy",
}
"""Manual lists of modules, without those that the launcher would add."""
FRAMEWORKS = (*LISTS, "lightning", "transformers")
LIMIT_S = 240.0
TORCHRUN = "torchrun"
LOG = "log"
HANG_S = 5


def ways(framework: str) -> dict[str, dict[str, str]]:
    """The supervisor's variables, by way to prepare."""
    found = {TORCHRUN: {}, "no standby": {}, "auto": {"WORKER_PRELOAD": "auto"}}
    found[LOG] = {"PROGRESS_PATTERN": "auto", "HANG_SECONDS": str(HANG_S)}
    if framework not in LISTS:
        return found
    listed = LISTS[framework]
    return found | {
        "list": {"WORKER_PRELOAD": listed},
        "list, warm": {"WORKER_PRELOAD": f"{framework},{listed},jobsetpy.warm.{framework}"},
    }


def command_of(
    python: str, program: str, *, pod: int, pods: int, processes: int, launched: bool
) -> tuple[list[str], dict[str, str]]:
    """Return the command of a pod with several ranks, and its variables.

    Args:
        python: Python that has the framework.
        program: path of the training.
        pod: index of the pod.
        pods: number of pods.
        processes: number of ranks of a pod.
        launched: if true, the supervisor runs torchrun.
    """
    words = [python, "-m", "torch.distributed.run", f"--nnodes={pods}", f"--node-rank={pod}"]
    words += [f"--nproc-per-node={processes}", "--master-addr=127.0.0.1", program]
    if launched:
        return words, {}
    found = translate(words, pods=pods)
    assert found is not None
    environ = {
        "WORKER_PROCESSES": str(found.processes),
        "WORKER_WORLD_SIZE": str(pods * processes),
        "WORKER_JOB_PODS": str(pods),
        "WORKER_POD_INDEX": str(pod),
    }
    return list(found.command), environ | dict(found.env)


def make_account(folder: Path) -> ssl.SSLContext:
    """Create a service account's folder, and the server's part of it."""

    authority, _ = write_certificate(folder)
    (folder / "ca.crt").write_bytes(authority.certificate)
    (folder / "token").write_text("pod-token")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


class Group:
    """Ranks under supervisors, with a controller that lifts their barrier."""

    def __init__(self, server: FakeApiServer, folder: Path, ranks: int, pods: int) -> None:
        self.training = Training(folder, ranks)
        self._server = server
        self._ready = [0] * pods
        self.noticed_at = 0.0
        self.agents: list[asyncio.subprocess.Process] = []

    async def control(self) -> None:
        """Simulate the controller: lift a complete barrier, deprecate when one agent is ahead."""
        synced = 0
        while True:
            epochs = [self._epoch(pod) for pod in range(len(self._ready))]
            if min(epochs) > synced:
                synced = min(epochs)
                self._server.set_status(JOBSETS, "js", syncedEpoch=synced)
            elif synced and max(epochs) > synced:
                self._server.set_status(JOBSETS, "js", deprecatedEpoch=synced)
            await asyncio.sleep(0.005)

    def _epoch(self, number: int) -> int:
        pod = self._server.get("pods", f"p-{number}")
        return int(pod["metadata"].get("annotations", {}).get(EPOCH, 0)) if pod else 0

    async def follow(self, pod: int, log: Path) -> None:
        """Count the standby processes that are ready, and keep the rest of the log."""
        output = self.agents[pod].stdout
        assert output is not None
        with log.open("wb") as file:
            async for line in output:
                file.write(line)
                file.flush()
                self._ready[pod] += b'"standby ready"' in line
                if b"the worker hangs" in line:
                    self.noticed_at = time.time()

    async def standbys(self, times: int) -> None:
        """Wait until each pod has had ``times`` processes that were ready."""
        async with asyncio.timeout(LIMIT_S):
            while min(self._ready) < times:  # noqa: ASYNC110 - files send no notifications
                await asyncio.sleep(0.05)

    async def fail(self, rank: int, number: int = signal.SIGKILL) -> float:
        """Kill or stop a rank; return the seconds until all ranks step again."""
        pid = self.training.runs()[rank]["pid"]
        began = time.time()
        os.kill(pid, number)
        found = await self.training.stepping(began, LIMIT_S)
        if number == signal.SIGSTOP:
            say(f"noticed from the output after {self.noticed_at - began:.2f} s, limit {HANG_S} s")
        run = found[0]
        say(f"first step {run['step']}, the last one before was {run['before']}")
        return max(run["at"] for run in found.values()) - began


@asynccontextmanager
async def running(
    framework: str,
    python: str,
    ranks: int,
    given: Mapping[str, str],
    *,
    processes: int = 0,
    launched: bool = False,
) -> AsyncIterator[Group]:
    """Training with the given number of ranks, all of which step.

    Args:
        framework: name of the training.
        python: Python that has the framework.
        ranks: number of ranks.
        given: variables of the supervisors.
        processes: number of ranks of each pod; 0 for one that is numbered here.
        launched: if true, the supervisor runs torchrun.
    """
    pods = ranks // (processes or 1)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="training-")))
        account, shared = folder / "account", folder / "shared"
        account.mkdir()
        shared.mkdir()
        server = FakeApiServer(tls=make_account(account), token="pod-token")
        await stack.enter_async_context(server)
        server.register(JOBSETS)
        server.create(JOBSETS, make_jobset("js").in_place_restart().build())
        group = Group(server, shared, ranks, pods)
        port = str(free_port())
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(lambda: [task.cancel() for task in own])
        program = str(ROOT / "bench" / f"training_{framework}.py")
        for number in range(pods):
            server.create("pods", make_pod(f"p-{number}").build())
            pod = folder / f"p-{number}"
            pod.mkdir()
            environ = {
                "NAMESPACE": "default",
                "POD_NAME": f"p-{number}",
                "JOBSET_NAME": "js",
                "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "PATH": os.environ["PATH"],
                "KUBERNETES_SERVICE_PORT": str(server.port),
                "SHARED": str(shared),
                "SERVICE_ACCOUNT_DIR": str(account),
                "ARRIVAL_FILE": str(pod / "arrival"),
                "JOBSET_PROGRESS_FILE": str(pod / "progress"),
                "WORKER_IMPORTS_FILE": str(pod / "imports"),
                "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": "127.0.0.1",
                "WORKER_STANDBY_DELAY_SECONDS": "3",
                **given,
            }
            command = [python, program]
            if processes:
                command, more = command_of(
                    python, program, pod=number, pods=pods, processes=processes, launched=launched
                )
                environ |= more
            else:
                environ |= {"RANK": str(number), "WORLD_SIZE": str(ranks), "MASTER_PORT": port}
            if "PROGRESS_PATTERN" in given:
                command = ["env", "-u", "JOBSET_PROGRESS_FILE", *command]
            words = [sys.executable, "-I", "-m", "jobsetpy.agent", "supervise", "--"]
            agent = await asyncio.create_subprocess_exec(
                *words, *command, env=environ,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            group.agents.append(agent)
        own = [tasks.create_task(group.control())]
        own += [
            tasks.create_task(group.follow(number, shared / f"log-{number}"))
            for number in range(pods)
        ]
        try:
            await group.training.stepping(0, LIMIT_S)
            yield group
        except BaseException:
            for number in range(pods):
                say((shared / f"log-{number}").read_text()[-2000:])
            raise
        finally:
            for agent in group.agents:
                with suppress(ProcessLookupError):
                    agent.terminate()
            await asyncio.gather(*(agent.wait() for agent in group.agents))


async def measure(options: argparse.Namespace) -> None:
    """All ways, in turn."""
    found: dict[str, list[float]] = {way: [] for way in options.ways}
    known = ways(options.framework)
    for number in range(options.rounds):
        for way in options.ways:
            given = known[way]
            async with running(
                options.framework, options.python, options.ranks, given,
                processes=options.processes, launched=way == TORCHRUN,
            ) as group:  # fmt: skip
                for restart in range(options.restarts + 1):
                    if given and way != LOG:
                        await group.standbys((restart + 1) * (options.processes or 1))
                    await asyncio.sleep(options.settle)
                    victim = (number + restart) % options.ranks
                    took = await group.fail(
                        victim, signal.SIGSTOP if way == LOG else signal.SIGKILL
                    )
                    say(f"{way}, round {number + 1}, restart {restart + 1}: {took:.2f} s")
                    if restart or options.first:
                        found[way].append(took)
                    if options.results:
                        line = {"framework": options.framework, "way": way, "seconds": took}
                        line |= {"restart": restart + 1, "load": os.getloadavg()[0]}
                        with options.results.open("a") as file:
                            file.write(json.dumps(line) + "\n")
    for way, seconds in found.items():
        say(f"{options.framework}, {way}: {spread(seconds)} s, {len(seconds)} restarts")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", choices=FRAMEWORKS, default="torch")
    parser.add_argument("--python", default=sys.executable, help="Python that has the framework")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--processes", type=int, default=0, help="ranks of each pod; 0: one")
    parser.add_argument("--rounds", type=int, default=1, help="starts of each way, in turn")
    parser.add_argument("--restarts", type=int, default=3, help="per start, after a first one")
    parser.add_argument("--first", action="store_true", help="count each start's first restart too")
    parser.add_argument("--settle", type=float, default=4.0, help="seconds before a failure")
    parser.add_argument("--ways", nargs="+", default=["no standby", "list", "list, warm", "auto"])
    parser.add_argument("--results", type=Path, help="file to which lines of JSON are appended")
    asyncio.run(measure(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
