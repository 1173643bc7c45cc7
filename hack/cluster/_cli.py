"""The command line of this tool."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from . import _build, _config, _state
from ._binaries import Binaries
from ._cluster import Cluster
from ._errors import ClusterError
from ._progress import Shown
from ._versions import ALL_PARTS, Release

DEFAULT_NAME = "dev"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    arguments = _parser().parse_args(argv)
    # `kill` and a closed terminal end `up` as Ctrl-C does: an incomplete start is undone.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        result: int | None = arguments.run(arguments)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cluster: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    return result or 0


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python hack/cluster",
        description="A real Kubernetes control plane, and real nodes on request, on this machine.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str, *, named: bool = True) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        if named:
            made.add_argument("--name", default=DEFAULT_NAME, help="the cluster (default: dev)")
            made.add_argument(
                "--existing",
                action="store_true",
                help="use the cluster of $KUBECONFIG; nothing is started or stopped",
            )
        return made

    up = command("up", _up, "start a cluster")
    _up_options(up)
    down = command("down", _down, "stop a cluster and remove all of its files")
    down.add_argument("--all", action="store_true", help="every cluster of this user")
    down.add_argument("--crashed", action="store_true", help="every cluster that no longer runs")
    command("status", _status, "show running parts").add_argument("--all", action="store_true")
    command("env", _env, "print the line that sets KUBECONFIG in a shell")
    run = command("exec", _exec, "run a command in the cluster's network")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    binaries = command("binaries", _get_binaries, "get the programs and print their paths")
    binaries.add_argument("part", nargs="*", help=f"any of {', '.join(ALL_PARTS)}; default: all")
    binaries.add_argument(
        "--update-lock", action="store_true", help="update gomod/ for the pinned releases"
    )
    images = command("images", _images, "load image archives into every node")
    images.add_argument("action", choices=["load"])
    images.add_argument("tar", nargs="+", type=Path, help="a docker-archive file")
    logs = command("logs", _logs, "print a component's log, or the names of all logs")
    logs.add_argument("which", nargs="?")
    logs.add_argument("--path", action="store_true", help="print only the file's path")
    logs.add_argument("--tail", type=int, metavar="LINES")
    return parser


def _up_options(up: argparse.ArgumentParser) -> None:
    """Add the options of `up`, whose names are those of the arguments of `Cluster`."""
    many: dict[str, Any] = {"action": "append", "default": []}
    up.add_argument(
        "--nodes", type=int, default=0, help="number of real nodes (Linux and root); default: 0"
    )
    up.add_argument("--dns", action="store_true", help="DNS for pods on the nodes")
    up.add_argument("--no-controller-manager", dest="controller_manager", action="store_false")
    up.add_argument("--no-scheduler", dest="scheduler", action="store_false")
    for part in ("etcd", "apiserver", "controller-manager", "scheduler"):
        into = f"{part.replace('-', '_')}_args"
        text = "repeatable"
        up.add_argument(f"--{part}-arg", dest=into, metavar="ARG", help=text, **many)
    up.add_argument("--feature-gate", dest="feature_gates", metavar="NAME=true|false", **many)
    up.add_argument("--runtime-config", metavar="API=true|false", **many)
    up.add_argument("--max-requests-inflight", type=int)
    up.add_argument("--max-mutating-requests-inflight", type=int)
    up.add_argument("--fsync", action="store_true", help="let etcd sync its writes to disk")
    up.add_argument("--crd", dest="crds", metavar="FILE", **many)
    up.add_argument("--image", dest="images", metavar="TAR", **many)
    up.add_argument("--timeout", dest="timeout_s", type=float, default=90.0, metavar="SECONDS")


def _cluster(arguments: argparse.Namespace, **settings: Any) -> Cluster:
    existing = None
    if arguments.existing:
        existing = os.environ.get("JOBSETPY_KUBECONFIG") or os.environ.get("KUBECONFIG")
        if not existing:
            raise ClusterError("--existing needs KUBECONFIG to be set")
    return Cluster(name=arguments.name, existing=existing, **settings)


def _up(arguments: argparse.Namespace) -> None:
    others = {"run", "name", "existing"}
    settings = {name: given for name, given in vars(arguments).items() if name not in others}
    for name in ("feature_gates", "runtime_config"):
        settings[name] = _config.switches(settings[name], f"--{name.replace('_', '-')}")
    cluster = _cluster(arguments, **settings)
    cluster.start(detached=True, progress=Shown())
    if cluster.is_existing:
        print(f"using {cluster.kubeconfig}; nothing was started", file=sys.stderr)
    else:
        print(f"up; next: eval $(python hack/cluster env --name {cluster.name})", file=sys.stderr)


def _down(arguments: argparse.Namespace) -> None:
    names = [arguments.name]
    if arguments.all or arguments.crashed:
        names = [n for n in Cluster.names() if arguments.all or not Cluster(name=n).running]
    for name in names:
        arguments.name = name
        cluster = _cluster(arguments)
        if cluster.is_existing:
            print("an existing cluster is left alone", file=sys.stderr)
            return
        begun, was = time.monotonic(), cluster.folder.exists()
        cluster.down()
        took = time.monotonic() - begun
        print(f"{name}: " + (f"down in {took:.1f} s" if was else "was not up"), file=sys.stderr)


def _status(arguments: argparse.Namespace) -> int:
    if arguments.all:
        for name in Cluster.names():
            print(name, "up" if Cluster(name=name).running else "crashed: run down")
        return 0
    cluster = _cluster(arguments)
    if cluster.is_existing:
        print(f"existing cluster: {cluster.kubeconfig}")
        return 0
    if not cluster.running:
        left = "crashed, run down" if cluster.folder.exists() else "not up"
        print(f"{cluster.name}: {left}")
        return 3
    ready = cluster.api.ready()
    print(f"{cluster.name}: API server {'ready' if ready else 'NOT ready'}  {cluster.kubeconfig}")
    for name, row in cluster.components().items():
        if row["exit"] is not None:
            print(f"  {name:28} ended with status {row['exit']}")
            continue
        cpu, memory = cluster.cpu_seconds(name), cluster.rss_bytes(name) >> 20
        print(f"  {name:28} pid {row['pid']:<8} cpu {cpu:7.1f} s  {memory:5} MiB")
    return 0 if ready else 4


def _require_up(cluster: Cluster) -> Cluster:
    if not cluster.running:
        raise ClusterError(
            f"cluster {cluster.name!r} is not up: python hack/cluster up --name {cluster.name}"
        )
    return cluster


def _env(arguments: argparse.Namespace) -> None:
    print(f"export KUBECONFIG={shlex.quote(str(_require_up(_cluster(arguments)).kubeconfig))}")


def _exec(arguments: argparse.Namespace) -> None:
    cluster = _require_up(_cluster(arguments))
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not words:
        raise ClusterError("exec needs a command: python hack/cluster exec -- COMMAND ...")
    argv = [*cluster.exec_prefix, *words]
    try:
        os.execvpe(argv[0], argv, cluster.env(inside=True))
    except OSError as error:
        raise ClusterError(f"cannot run {argv[0]}: {error.strerror}") from error


def _get_binaries(arguments: argparse.Namespace) -> None:
    with Shown() as progress:
        if arguments.update_lock:
            cache = _state.cache_dir()
            cache.mkdir(parents=True, exist_ok=True)
            go = _build.find_go(cache, progress)
            _build.write_locks(go, Release(), progress)
            return
        if unknown := set(arguments.part) - set(ALL_PARTS):
            raise ClusterError(f"no such program: {', '.join(sorted(unknown))}")
        found = Binaries.find(arguments.part or ALL_PARTS, progress)
    for path in found.values():
        print(path)


def _images(arguments: argparse.Namespace) -> None:
    _require_up(_cluster(arguments)).load_images(arguments.tar)


def _logs(arguments: argparse.Namespace) -> None:
    cluster = _cluster(arguments)
    if cluster.is_existing:
        raise ClusterError("logs of an existing cluster are not available")
    if not arguments.which:
        print("\n".join(cluster.logs()))
        return
    path: Path = cluster.log_path(arguments.which)
    if not path.exists():
        raise ClusterError(f"no log {arguments.which!r}; available: {', '.join(cluster.logs())}")
    if arguments.path:
        print(path)
        return
    lines = path.read_text(errors="replace").splitlines(keepends=True)
    sys.stdout.writelines(lines[-arguments.tail :] if arguments.tail else lines)
