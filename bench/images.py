"""Size of the images, and start-up time of their processes.

They are built as for a release. Programs are started from the image's files (its interpreter, its
libraries by its own loader, its bytecode), unpacked into a folder: the manager until its readiness
probe succeeds, the agent until the API server has stored its epoch (see ``agent.py``). The cost of
a node (pulling, unpacking, creating a container) is measured by ``real_pods.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.agent import Way, free_port, measure
from bench.common import ROOT, install_crd, say, spread, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from hack.images import project  # type: ignore[import-not-found]
from hack.images.containerfile import read_target  # type: ignore[import-not-found]
from support.cluster.install import connected

READY_TIMEOUT_S = 60.0
MANAGER_MB, AGENT_MB = 40, 15  # compressed
READY_MS, STORED_MS = 1500, 200
Row = tuple[str, str, str]


def unpack(archive: Path, root: Path) -> list[int]:
    """Unpack an image into the folder ``root``; return the compressed sizes of its layers."""
    sizes = []
    with tarfile.open(archive) as tar:

        def blob(name: str) -> tarfile.ExFileObject:
            file = tar.extractfile(name)
            assert isinstance(file, tarfile.ExFileObject)
            return file

        for name in json.load(blob("manifest.json"))[0]["Layers"]:
            sizes.append(tar.getmember(name).size)
            with tarfile.open(fileobj=blob(name)) as layer:
                layer.extractall(root, filter="tar")
    return sizes


def command(name: str, root: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment that run an image's program from its unpacked files."""
    target = read_target(ROOT / "Containerfile", name)
    folders = sorted({path.parent for path in (root / "lib").rglob("*.so*")})
    libraries = ":".join(map(str, [*folders, root / "usr/lib/x86_64-linux-gnu"]))
    loader = next((root / "lib64").glob("ld-linux-*"), None) or next(root.glob("lib/ld-linux-*"))
    python = [str(loader), "--library-path", libraries, str(root / "usr/local/bin/python3")]
    env = {**target.env, "PYTHONPATH": str(root / "app"), "PYTHONHOME": str(root / "usr/local")}
    return [*python, *target.entrypoint[1:]], env


async def manager_ready(kubeconfig: Path, words: list[str], env: Mapping[str, str]) -> float:
    """Milliseconds from the start of a manager to its readiness, without its webhooks."""
    port = free_port()
    words = [*words, "manager", "--kubeconfig", str(kubeconfig), "--metrics-bind-address=0"]
    words += [f"--health-probe-bind-address=127.0.0.1:{port}", "--leader-elect=false"]
    began = time.perf_counter()
    process = subprocess.Popen(  # noqa: ASYNC220 - the fastest way, and it does not block
        words, env=dict(env), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            while not await ready(port):
                if process.poll() is not None:
                    raise SystemExit(f"the manager ended with {process.returncode}")
                await asyncio.sleep(0.002)
        return (time.perf_counter() - began) * 1000
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 30)


async def ready(port: int) -> bool:
    """Return True if the readiness probe succeeds."""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        with contextlib.closing(writer):
            return b" 200 " in (await reader.read()).partition(b"\r\n")[0]
    return False


async def managers(
    kubeconfig: Path, words: list[str], env: Mapping[str, str], count: int
) -> list[float]:
    """Time several alternating starts; the first one, which warms caches, is left out."""
    async with connected(kubeconfig) as client:
        await install_crd(client)
    times = [await manager_ready(kubeconfig, words, env) for _ in range(count + 1)]
    return times[1:]


def sizes(name: str, built: project.Built, layers: list[int], aim: int) -> list[Row]:
    """Rows with the sizes that a node pulls and stores."""
    parts = " + ".join(f"{size / 1e6:.1f}" for size in layers)
    return [
        (f"{name}: compressed, MB", f"{built.bytes / 1e6:.1f} ({parts})", f"<= {aim}"),
        (f"{name}: unpacked, MB", f"{built.file_bytes / 1e6:.1f}", ""),
        (f"{name}: files, folders and links", f"{built.files}", ""),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=10, help="of each kind (default 10)")
    options = parser.parse_args()
    rows: list[Row] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        ways = {}
        for image, aim in (("manager", MANAGER_MB), ("agent", AGENT_MB)):
            say(f"building the {image}'s image")
            built = project.build(image, folder, release=project.Release(compress=True))
            rows += sizes(image, built, unpack(built.path, folder / image), aim)
            ways[image] = command(image, folder / image)
        say(f"starting an API server; {options.starts} starts of each")
        with Cluster(controller_manager=False, scheduler=False) as own:
            times = asyncio.run(managers(own.kubeconfig, *ways["manager"], options.starts))
            words, env = ways["agent"]
            supervised = {**env, "PATH": os.environ["PATH"]}
            kinds = [Way("agent", words, env), Way("supervisor", words, supervised, True)]
            lives = asyncio.run(measure(own.kubeconfig, kinds, options.starts))
    rows.append(("manager: process start to ready, ms", spread(times, digits=0), f"<= {READY_MS}"))
    for kind, each in lives.items():
        stored = spread([life.stored for life in each], digits=0)
        rows.append((f"{kind}: process start to epoch stored, ms", stored, f"<= {STORED_MS}"))
    table(f"The images ({options.starts} starts each; min / median / max; layers)", rows)


if __name__ == "__main__":
    main()
