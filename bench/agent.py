"""Start of the agent: from the start of its process until the API server has stored its epoch.

Etcd and API server, the role and (in our own cluster) the admission policy are real, and the token
is bound to the pod. The agent is started as in its image: with bytecode, without site-packages and
docstrings. All starts are for one pod: the benchmark simulates the controller, lifts the barrier,
deprecates the epoch, and starts the agent again after its exit.

The time of the patch is that of the event of a watch on the pod, which was opened before.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import msgspec
import yaml

from bench.common import ROOT, create_namespace, install_crd, say, spread, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from hack.cluster._cgroups import hierarchies  # type: ignore[import-not-found]
from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client, HttpRequest, connect
from support.cluster.account import token_of
from support.cluster.install import apply_object
from support.cluster.manager_process import free_port, memory_mb
from support.patience import News

NAMESPACE, POD, JOBSET, ACCOUNT = "bench-agent", "pod-0", "js", "jobset-agent"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
EXIT_CODE, TERMINATED = 42, 143
FLAGS = ["-s", "-S", "-OO"]
COMPILED = """
import argparse, compileall, encodings.idna, os, runpy
from jobsetpy.agent import __main__
compileall.compile_dir(os.environ["PYTHONPATH"], quiet=1)
__main__._load()
"""
MODULES = """
import sys
from jobsetpy.agent import __main__
__main__._load()
print(sorted(n for n, m in sys.modules.items() if type(m) is not __main__.Deferred))
"""
AUDIT_POLICY = f"""
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
- level: Metadata
  users: ["{USER}"]
- level: None
"""
STORED_MS, MEMORY_MB = 165, 25


@attrs.frozen
class Life:
    """One run of the agent; times in milliseconds."""

    stored: float
    lifted: float
    exited: float
    cpu: float
    memory: float
    """Maximum resident size in MB."""


class Controller:
    """Objects that the agent reads and writes, and a watch on its pod."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.epoch = 0
        self.seen_at = 0.0
        self.news = News()

    async def watch(self, opened: asyncio.Event) -> None:
        """Record when the pod's epoch changes."""
        decoder = msgspec.json.Decoder(Pod)
        page = await self.client.list_page(Pod, NAMESPACE)
        async with self.client.watch(
            Pod, NAMESPACE, resource_version=page.resource_version, timeout_seconds=3600
        ) as stream:
            opened.set()
            while frames := await stream.read():
                now = time.perf_counter()
                for frame in frames:
                    pod = decoder.decode(frame.object)
                    epoch = int(pod.metadata.annotations.get(keys.EPOCH_ANNOTATION, "0"))
                    if frame.type == "MODIFIED" and epoch != self.epoch:
                        self.epoch, self.seen_at = epoch, now
                        self.news.set()

    async def stored(self, epoch: int) -> float:
        """Return the time at which the pod's annotation showed the epoch."""
        await self.news.until(lambda: self.epoch == epoch, 30)
        return self.seen_at

    async def status(self, **epochs: int) -> None:
        """Write the JobSet's status."""
        await self.client.merge_patch(
            JobSet, NAMESPACE, JOBSET, {"status": epochs}, subresource="status"
        )


@attrs.frozen
class Way:
    """One way to start the agent."""

    name: str
    command: list[str]
    environ: dict[str, str]
    supervised: bool = False
    """True if the agent is the worker's parent, which does not exit with an epoch."""


def supervising(way: Way, started: Path) -> list[str]:
    """Return the command line of ``way``, with a worker that creates the file ``started``."""
    return [*way.command, "supervise", "--", "sh", "-c", f": > {started}; exec sleep 100"]


async def live(way: Way, controller: Controller, epoch: int, environ: dict[str, str]) -> Life:
    """One life of the agent: joins ``epoch``, its barrier is lifted, it is deprecated and exits.

    A supervisor exits at SIGTERM; for it, lifted means that its worker runs.
    """
    port = free_port()
    started = Path(environ["SERVICE_ACCOUNT_DIR"]) / f"started-{epoch}"
    command = supervising(way, started) if way.supervised else way.command

    async def lifts() -> bool:
        return started.exists() if way.supervised else await probe(port) == 200

    environ = {**way.environ, **environ, "BARRIER_PORT": str(port)}
    began = time.perf_counter()
    quiet = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(  # noqa: ASYNC221 - the fastest way, and it does not block
        command[0], command, environ, file_actions=quiet
    )
    ended = asyncio.create_task(asyncio.to_thread(os.wait4, pid, 0))
    try:
        stored = await controller.stored(epoch)
        # Let the worker run for a while, so that the agent has started before the next state.
        await asyncio.sleep(0.15)
        asked = time.perf_counter()
        await controller.status(syncedEpoch=epoch)
        while not await lifts():  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(0.001)
        lifted = time.perf_counter() - asked
        memory = memory_mb(pid, "VmHWM")  # rusage would include its parent's
        asked = time.perf_counter()
        if way.supervised:
            os.kill(pid, signal.SIGTERM)
        await controller.status(deprecatedEpoch=epoch)
        async with asyncio.timeout(30):
            _, status, usage = await ended
        exited = time.perf_counter() - asked
    finally:
        if not ended.done():
            os.kill(pid, 9)
            await ended
    if os.waitstatus_to_exitcode(status) != (TERMINATED if way.supervised else EXIT_CODE):
        raise SystemExit(f"the agent ended with {os.waitstatus_to_exitcode(status)}")
    return Life(
        stored=(stored - began) * 1000,
        lifted=lifted * 1000,
        exited=exited * 1000,
        cpu=(usage.ru_utime + usage.ru_stime) * 1000,
        memory=memory,
    )


async def probe(port: int) -> int:
    """The status of the barrier."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /barrier-is-lifted HTTP/1.1\r\n\r\n")
    try:
        return int((await reader.read()).split()[1])
    finally:
        writer.close()


@contextlib.contextmanager
def cpu_limited(way: Way, millicores: int) -> Iterator[Way]:
    """Run ``way`` in its own cgroup with a container's CPU limit; needs root."""
    old, new = hierarchies()
    roots = [root for root in old if (root / "cpu.shares").exists()]
    root = roots[0] if roots else new
    if root is None:
        raise SystemExit("no cgroup file system is mounted")
    folder = root / f"bench-agent-{os.getpid()}-{millicores}"
    folder.mkdir()
    try:
        if roots:
            (folder / "cpu.cfs_period_us").write_text("100000")
            (folder / "cpu.cfs_quota_us").write_text(str(millicores * 100))
        else:
            (folder / "cpu.max").write_text(f"{millicores * 100} 100000")
        enter = f'echo $$ > {folder}/cgroup.procs; exec "$@"'
        command = ["/bin/sh", "-c", enter, "sh", *way.command]
        yield attrs.evolve(way, name=f"{way.name}, limit {millicores}m", command=command)
    finally:
        folder.rmdir()


def bare_python(flags: list[str], count: int) -> list[float]:
    """Milliseconds to start and end an interpreter that imports nothing."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run([sys.executable, *flags, "-c", ""], check=True)
        times.append((time.perf_counter() - began) * 1000)
    return times


@contextlib.contextmanager
def image_root() -> Iterator[dict[str, str]]:
    """Build the module path of the agent's image, with bytecode; return its environment."""
    package = ROOT / "src/jobsetpy"
    [parts] = re.findall(r"cp -r (.+) /app/jobsetpy/", (ROOT / "Containerfile").read_text())
    with TemporaryDirectory() as name:
        root = Path(name) / "app"
        (root / "jobsetpy").mkdir(parents=True)
        for part in parts.split():
            copy = shutil.copytree if (package / part).is_dir() else shutil.copy
            copy(package / part, root / "jobsetpy" / part)
        for module in ("h11", "msgspec"):
            spec = find_spec(module)
            assert spec is not None
            assert spec.origin is not None
            shutil.copytree(Path(spec.origin).parent, root / module)
        environ = {"PYTHONPATH": str(root), "PYTHONPYCACHEPREFIX": f"{name}/bytecode"}
        first = [sys.executable, *FLAGS, "-c", COMPILED]
        subprocess.run(first, env=environ, check=True)
        yield {**environ, "PYTHONDONTWRITEBYTECODE": "1"}


@contextlib.asynccontextmanager
async def prepared(
    client: Client, server: str, folder: Path, ca: bytes
) -> AsyncIterator[dict[str, str]]:
    """Create JobSet, pod, account and a token bound to the pod; return the agent's environment."""
    await install_crd(client)
    await create_namespace(client, NAMESPACE)
    for path in sorted((ROOT / "config/agent").glob("*/*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document["kind"] != "Kustomization":
                document["metadata"]["namespace"] = NAMESPACE
                if document["kind"].startswith("Validating"):
                    del document["metadata"]["namespace"]
                for subject in document.get("subjects", ()):
                    subject["namespace"] = NAMESPACE
                await apply_object(client, document)
    sample = yaml.safe_load((ROOT / "config/samples/in_place_restart.yaml").read_text())
    sample["metadata"] = {"name": JOBSET, "namespace": NAMESPACE}
    await apply_object(client, sample)
    pod = await client.create(
        Pod,
        NAMESPACE,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": POD},
            "spec": {
                "serviceAccountName": ACCOUNT,
                "automountServiceAccountToken": False,
                "nodeName": "nowhere",
                "containers": [{"name": "worker", "image": "worker:1"}],
            },
        },
    )
    bound = {"apiVersion": "v1", "kind": "Pod", "name": POD, "uid": pod.metadata.uid}
    (folder / "token").write_text(await token_of(client, NAMESPACE, ACCOUNT, bound_to=bound))
    (folder / "ca.crt").write_bytes(ca)
    host, _, port = server.removeprefix("https://").rpartition(":")
    try:
        yield {
            "NAMESPACE": NAMESPACE,
            "POD_NAME": POD,
            "JOBSET_NAME": JOBSET,
            "RESTART_POD_IN_PLACE_EXIT_CODE": str(EXIT_CODE),
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "SERVICE_ACCOUNT_DIR": str(folder),
            "ARRIVAL_FILE": f"{folder}/arrival",
            "BARRIER_BIND_ADDRESS": "127.0.0.1",
        }
    finally:
        await client.raw(HttpRequest(method="DELETE", path=f"/api/v1/namespaces/{NAMESPACE}"))


async def measure(kubeconfig: Path, ways: list[Way], lives: int) -> dict[str, list[Life]]:
    """Measure all lives; ways alternate, so that other load on the machine affects all equally."""
    import base64

    config = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    ca = base64.b64decode(config["certificate-authority-data"])
    client = await connect(kubeconfig=str(kubeconfig))
    results: dict[str, list[Life]] = {way.name: [] for way in ways}
    with TemporaryDirectory() as folder:
        try:
            async with prepared(client, config["server"], Path(folder), ca) as environ:
                controller, opened = Controller(client), asyncio.Event()
                watching = asyncio.create_task(controller.watch(opened))
                await opened.wait()
                epoch = 0
                for turn in range(lives + 1):
                    for way in ways:
                        epoch += 1
                        life = await live(way, controller, epoch, environ)
                        if turn:  # the first one warms up caches and the API server
                            results[way.name].append(life)
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
        finally:
            await client.aclose()
    return results


def requests_sent(audit_log: Path) -> dict[str, int]:
    """Number of requests of the agents' account, by verb and resource."""
    counts: dict[str, int] = {}
    for line in audit_log.read_text().splitlines():
        entry: dict[str, Any] = json.loads(line)
        what = f"{entry['verb']} {entry.get('objectRef', {}).get('resource', '?')}"
        counts[what] = counts.get(what, 0) + 1
    return counts


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lives", type=int, default=20, help="starts of each kind (default 20)")
    parser.add_argument("--existing", help="kubeconfig of a cluster to use, without audit log")
    parser.add_argument(
        "--cpu-limits", default="", help="also with these limits, in millicores: 250,100"
    )
    options = parser.parse_args()
    with (
        image_root() as environ,
        TemporaryDirectory() as folder,
        contextlib.ExitStack() as limited,
    ):
        ways = [
            Way("image", [sys.executable, *FLAGS, "-m", "jobsetpy.agent"], environ),
            Way("python -m", [sys.executable, "-m", "jobsetpy.agent"], {}),
            Way(
                "supervisor",
                [sys.executable, *FLAGS, "-m", "jobsetpy.agent"],
                {**environ, "PATH": os.environ["PATH"]},
                supervised=True,
            ),
        ]
        for limit in filter(None, options.cpu_limits.split(",")):
            ways.append(limited.enter_context(cpu_limited(ways[0], int(limit))))
        listed = subprocess.run(
            [*ways[0].command[:-2], "-c", MODULES], env=environ, capture_output=True, check=True
        )
        bare = bare_python(FLAGS, options.lives)
        counts: dict[str, int] = {}
        if options.existing:
            results = asyncio.run(measure(Path(options.existing), ways, options.lives))
        else:
            policy, log = Path(folder, "policy.yaml"), Path(folder, "audit.log")
            policy.write_text(AUDIT_POLICY)
            audit = [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]
            say("starting etcd and an API server")
            with Cluster(controller_manager=False, scheduler=False, apiserver_args=audit) as own:
                say(f"{options.lives} lives of one pod, each way")
                results = asyncio.run(measure(own.kubeconfig, ways, options.lives))
                counts = requests_sent(log)
    rows = [("interpreter that imports nothing, ms", spread(bare, digits=1), "")]
    figures = (
        ("process start to epoch stored, ms", "stored", f"<= {STORED_MS}"),
        ("synced to probe answers 200 (or worker runs), ms", "lifted", ""),
        ("deprecated (or SIGTERM) to exited, ms", "exited", ""),
        ("CPU of a whole life, ms", "cpu", ""),
        ("largest resident size, MB", "memory", f"<= {MEMORY_MB}"),
    )
    for name, lives in results.items():
        for text, field, aim in figures:
            values = [getattr(life, field) for life in lives]
            rows.append((f"{name}: {text}", spread(values, digits=1), aim))
    total = len(results) * (options.lives + 1)
    rows += [(f"requests a life: {k}", f"{v / total:.2f}", "1") for k, v in counts.items()]
    table(f"The agent ({options.lives} starts each way; min / median / max)", rows)
    modules = ast.literal_eval(listed.stdout.decode())
    packages = sorted({name.partition(".")[0] for name in modules} - {"__main__"})
    print(f"{len(modules)} modules of {len(packages)} packages: {' '.join(packages)}")


if __name__ == "__main__":
    main()
