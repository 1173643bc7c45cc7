"""A cluster on this machine with jobsetpy on it: what ``make cluster`` does.

    local.py                start the cluster `local` with one real node (Linux, root), or use it
    local.py --kind NAME    use a cluster of kind
    local.py --k3d NAME     use a cluster of k3d
    local.py --down         end the cluster `local`

It builds the images, loads them on the nodes, applies ``config/local`` and the agents' account in
the namespace `default`, waits for the manager, and writes ``build/env``, which a shell reads with
``. build/env``. Repeated, it does the same with the sources as they are then.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from hack.cluster import Cluster, ClusterError
from hack.cluster._binaries import Binaries
from hack.cluster._progress import Shown
from hack.cluster._requirements import BUILD_PACKAGES, require_nodes, require_programs
from hack.images.basic import shell_image
from hack.images.project import NAMES, build

ROOT: Final = Path(__file__).resolve().parents[1]
NAME: Final = "local"
SHELL: Final = "docker.io/library/busybox:1.37"
"""Image of the tutorial; nodes of this repository get this machine's busybox under that name."""
MANAGER: Final = ("--namespace", "jobset-system", "deployment/jobset-controller-manager")
OTHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "kind": ("kind", "load", "image-archive", "{archive}", "--name", "{name}"),
    "k3d": ("k3d", "image", "import", "{archive}", "--cluster", "{name}"),
}
"""Command that loads an image, by the tool whose cluster is used."""


def main() -> int:
    """Start the cluster and install jobsetpy; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for tool in OTHERS:
        parser.add_argument(f"--{tool}", metavar="NAME", help=f"install on this cluster of {tool}")
    parser.add_argument("--down", action="store_true", help="end the cluster of this repository")
    options = parser.parse_args()
    if options.down:
        Cluster(name=NAME).down()
        print("the local cluster is stopped", file=sys.stderr)
        return 0
    given = {tool: name for tool in OTHERS if (name := getattr(options, tool))}
    try:
        with Shown() as progress:
            if given:
                (tool, name), *_ = given.items()
                other(tool, name, lambda: images(progress))
            else:
                own(progress)
    except (ClusterError, FileNotFoundError, subprocess.CalledProcessError) as error:
        print(f"make cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("make cluster: interrupted; repeat it, or run make cluster-down", file=sys.stderr)
        return 130
    print("jobsetpy runs. Next:  . build/env  &&  kubectl jobset doctor", file=sys.stderr)
    return 0


def own(progress: Shown) -> None:
    """Install on the cluster of this repository; start it if it does not run."""
    require_nodes(progress)  # busybox, which the image of the tutorial is made of
    archives = [*images(progress), ROOT / "build/images/busybox.tar"]
    dataclasses.replace(shell_image(), reference=SHELL).write(archives[-1])
    cluster = Cluster(name=NAME, nodes=1, dns=True, timeout_s=180)
    if not cluster.running:
        cluster.down()  # what a crashed one has left
        cluster.start(detached=True, progress=progress)
    progress.begin("loading the images")
    cluster.load_images(archives)
    kubectl = Binaries.find(["kubectl"], progress)["kubectl"]
    lines = [f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}"]
    progress.begin("installing jobsetpy")
    install([str(kubectl), "--kubeconfig", str(cluster.kubeconfig)])
    progress.step("jobsetpy installed")
    write_env(lines, kubectl.parent)


def other(tool: str, name: str, archives: Callable[[], list[Path]]) -> None:
    """Install on a cluster of another tool; its context becomes the current one.

    Raises:
        ClusterError: the tool or kubectl is missing.
    """
    for program in (tool, "kubectl"):
        if shutil.which(program) is None:
            raise ClusterError(
                f"{program} is not in PATH; install it, or run make cluster without {tool}"
            )
    # First, since it fails for a cluster that does not exist.
    subprocess.run(["kubectl", "config", "use-context", f"{tool}-{name}"], check=True)
    for archive in archives():
        words = [word.format(archive=archive, name=name) for word in OTHERS[tool]]
        subprocess.run(words, check=True)
    install(["kubectl"])
    write_env([])


def images(progress: Shown) -> list[Path]:
    """Build the images of manager and agent; return their archives."""
    require_programs(BUILD_PACKAGES)
    progress.begin("building the images")
    built = [build(name, ROOT / "build/images").path for name in NAMES]
    progress.step("images built")
    return built


def install(kubectl: list[str]) -> None:
    """Apply the manifests and wait until the manager is ready."""

    def run(*words: str) -> None:
        subprocess.run([*kubectl, *words], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)

    run("apply", "--server-side", "--force-conflicts", "-k", "config/local")
    run("apply", "--namespace", "default", "-k", "config/agent/account")
    run("rollout", "restart", *MANAGER)  # the image's name stays, its content does not
    run("rollout", "status", *MANAGER, "--timeout=180s")


def write_env(lines: list[str], *folders: Path) -> None:
    """Write the file that lets a shell find the cluster, kubectl and the plugin."""
    path = os.pathsep.join(shlex.quote(str(each)) for each in (ROOT / ".venv/bin", *folders))
    text = "\n".join([*lines, f'export PATH={path}:"$PATH"'])
    (ROOT / "build/env").write_text(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
