"""Start of real nodes: kubelet, containerd and runc in their own namespaces."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import _cgroups, _config, _node_config, _state
from ._errors import ClusterError
from ._identity import find_child, patient, wait_until
from ._pki import Authority
from ._requirements import cni_folder, program

NODE_INIT = Path(__file__).with_name("_node_init.py")
FORWARDER = Path(__file__).with_name("_forward.py")
UNSHARE = (
    *("--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("--propagation", "private", "--"),
)
# Folders of the machine that a node covers with its own: the cluster's files must be elsewhere.
COVERED = ("/run", "/var/lib", "/var/log")
OVERLAY = "overlay"
IMPORT_TIMEOUT_S = 300.0


def cgroups_of(cluster: str, settings: _config.Settings) -> list[str]:
    """Every cgroup folder that nodes may have created, for their removal."""
    names = [_config.cgroup_name(cluster, n) for n in range(1, settings.nodes + 1)]
    return [str(path) for name in names for path in _cgroups.node_paths(name)]


def spec_parts(folder: Path, ports: _config.Ports, settings: _config.Settings) -> dict[str, Any]:
    """Add nodes to the supervisor's spec: the network, the forwarder, a component per node."""
    python = [sys.executable, "-I", "-S"]
    with_its_folder = [sys.executable, "-E", "-s", "-S"]
    log = folder / "log"
    components: dict[str, Any] = {
        "forwarder": {
            "argv": [*python, str(FORWARDER), str(ports.api), _config.SERVICE_ADDRESS, "443"],
            "log": str(log / "forwarder.log"),
            "inherit_listener": True,
        }
    }
    for number in range(1, settings.nodes + 1):
        name = _config.node_name(number)
        components[name] = {
            "argv": [
                str(program("unshare")),
                *UNSHARE,
                *with_its_folder,
                str(NODE_INIT),
                str(folder / name),
            ],
            "log": str(log / f"{name}.log"),
            "network": _node_config.node_wire(number),
        }
    return {
        "components": components,
        "private_network": {"listen": ports.api, "ip": _node_config.cluster_network()},
    }


def check_place(path: Path, remedy: str) -> None:
    """Refuse a path that nodes could not see.

    Raises:
        ClusterError: the path is in a folder that a node covers; the message ends with `remedy`.
    """
    for place in (path.absolute(), path.resolve()):
        for covered in COVERED:
            if place.is_relative_to(covered):
                raise ClusterError(f"{place} is in {covered}, which nodes cover; {remedy}")


def check_places(state: Path, kubelet: Path) -> None:
    """Refuse to start nodes that could not see their files.

    Raises:
        ClusterError: a file is in a folder that a node covers.
    """
    check_place(state, "set JOBSETPY_STATE_DIR to another place")
    check_place(kubelet, "set XDG_CACHE_HOME or KUBEBUILDER_ASSETS to another place")
    for path in (Path(sys.executable), Path(sys.base_prefix), NODE_INIT):
        check_place(path, "use a Python and a copy of this project elsewhere")


def snapshotter_for(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """containerd's overlay snapshotter, or the native one if `folder` is itself on an overlay."""
    best, kind = "", ""
    place = str(folder.resolve())
    for line in mounts.read_text().splitlines():
        _, target, this_kind, *_ = line.split()
        inside = place == target or place.startswith(target.rstrip("/") + "/")
        if inside and len(target) >= len(best):
            best, kind = target, this_kind
    return "native" if kind == OVERLAY else "overlayfs"


def write_node(
    cluster: str,
    folder: Path,
    number: int,
    *,
    settings: _config.Settings,
    kubelet: Path,
    authority: Authority,
    token: str,
) -> None:
    """Write the files that node `number` reads, and create its cgroup."""
    name = _config.node_name(number)
    place = folder / name
    place.mkdir()
    authority.issue(
        name,
        subject=f"/O=system:nodes/CN=system:node:{name}",
        alt_names=(f"DNS:{name}", f"IP:{_config.node_address(number)}"),
    )
    cgroup = _config.cgroup_name(cluster, number)
    _cgroups.create(cgroup)
    kubelet_config = _node_config.kubelet_config(
        number, pki=folder / "pki", cgroup=cgroup, settings=settings
    )
    (place / "cni").mkdir()
    cni = _node_config.cni_config(number)
    _state.write_private(place / "cni" / "10-bridge.conflist", json.dumps(cni))
    _state.write_private(place / "kubelet.json", json.dumps(kubelet_config, indent=1))
    containerd = program("containerd")
    _state.write_private(place / "containerd.toml", _containerd_config(containerd, folder, place))
    _state.write_private(
        place / "kubelet.kubeconfig",
        _config.kubeconfig(
            name=name,
            server=f"https://{_config.SERVICE_ADDRESS}:443",
            ca=authority.cert.read_bytes(),
            token=token,
        ),
    )
    argv = {
        "containerd": [str(containerd), "--config", str(place / "containerd.toml")],
        "kubelet": _node_config.kubelet_argv(kubelet, place, number, settings),
    }
    spec = _node_spec(number, place, folder / "log", argv)
    _state.write_private(place / "spec.json", json.dumps(spec, indent=1))


def _containerd_config(containerd: Path, folder: Path, place: Path) -> str:
    cni_bin = cni_folder()
    assert cni_bin is not None  # checked before
    version = subprocess.run(
        [containerd, "--version"], capture_output=True, text=True, check=True, timeout=20
    ).stdout.split()[2]
    return _node_config.containerd_config(
        version=version,
        cni_bin=cni_bin,
        cni_conf=place / "cni",
        snapshotter=snapshotter_for(folder),
        runc=program("runc"),
    )


def _node_spec(
    number: int, place: Path, log: Path, argv: Mapping[str, list[str]]
) -> dict[str, Any]:
    """Return the spec of a node's first process: components, view and network."""
    name = _config.node_name(number)
    return {
        "components": {
            own_name: {"argv": words, "log": str(log / f"{name}-{own_name}.log")}
            for own_name, words in argv.items()
        },
        "at_start": ["containerd"],
        "view": {
            "hostname": name,
            "binds": [[str(place / "lib"), "/var/lib"], [str(place / "log"), "/var/log"]],
            "sysctls": list(_node_config.SYSCTLS),
            "sysctl_folder": str(place / "sysctl"),
        },
        "network": {"ip": _node_config.node_network(number)},
    }


def init_pid(unshare_pid: int) -> int:
    """Return process 1 of the node whose `unshare` has this pid.

    Raises:
        ClusterError: it did not start.
    """
    found: list[int] = []

    def look() -> bool:
        child = find_child(unshare_pid)
        found.extend([child] if child else [])
        return bool(found)

    if not wait_until(look, patient(5.0), 0.005):
        raise ClusterError("the node's first process did not start")
    return found[0]


def in_node(init: int) -> list[str]:
    """Words before a command that run it with the node's view of the files."""
    return [str(program("nsenter")), f"--target={init}", "--mount", "--"]


def wait_for_containerd(init: int, alive: Callable[[], None], timeout_s: float) -> None:
    """Wait until the node's containerd answers; `alive` raises if it never will."""
    probe = [*in_node(init), str(program("ctr")), "version"]

    def answers() -> bool:
        alive()
        if not Path(f"/proc/{init}/root{_node_config.CONTAINERD_SOCKET}").exists():
            return False
        done = subprocess.run(probe, capture_output=True, check=False, timeout=20)
        return done.returncode == 0

    if not wait_until(answers, timeout_s, 0.05):
        raise ClusterError("containerd does not answer")


def load_image(init: int, tar: Path, *, snapshotter: str) -> None:
    """Import a docker-archive into the node's containerd.

    Raises:
        ClusterError: containerd does not accept it.
    """
    argv = [*in_node(init), str(program("ctr")), "-n", "k8s.io", "images", "import"]
    argv += ["--snapshotter", snapshotter, "-"]
    with tar.open("rb") as file:
        done = subprocess.run(
            argv, stdin=file, capture_output=True, text=True, check=False, timeout=IMPORT_TIMEOUT_S
        )
    if done.returncode:
        raise ClusterError(f"{tar} cannot be loaded: {(done.stderr or done.stdout).strip()}")
