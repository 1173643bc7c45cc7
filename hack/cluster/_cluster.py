"""A cluster's public interface: start it, query it, break it on purpose, stop it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hack.images.basic import pause_image, shell_image

from . import _bringup, _cgroups, _config, _dns, _node_config, _nodes, _state
from ._binaries import Binaries
from ._components import Components
from ._control import Api, ask
from ._errors import ClusterError
from ._identity import ProcessId, patient, wait_until
from ._progress import Progress, Shown
from ._requirements import require_nodes
from ._supervisor import remove_cgroup

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def _gates_of_environment() -> dict[str, bool]:
    """Gates of ``JOBSETPY_FEATURE_GATES``, for test runs against a release that needs some."""
    words = filter(None, os.environ.get("JOBSETPY_FEATURE_GATES", "").split(","))
    return _config.switches(words, "JOBSETPY_FEATURE_GATES")


class Cluster(Components):
    """A Kubernetes cluster of our own, or an existing cluster.

    As a context manager, it ends with its block, and also if this process is killed inside it.
    With ``start(detached=True)`` it runs until ``down()``, which any process may call by name.

    If ``JOBSETPY_KUBECONFIG`` is set (or `existing` given), that cluster is used: nothing is
    started or stopped, `is_existing` is true, and methods that need a cluster of our own raise
    ClusterError.

    Args:
        name: name for `down`, `status` and other commands; generated if None.
        crds: files with one CustomResourceDefinition each, created before the controller manager
            starts (its garbage collector then knows them immediately, not half a minute later).
        images: docker-archive files to load into every node.
        binaries: folder with the programs; replaces the search for them.
        kubernetes: release of all programs, also of kubelets; default: from the environment.
        keep_logs: folder to which the logs are copied when the cluster ends.
        timeout_s: timeout of the start on an idle machine, without the time to get the programs.
            ``JOBSETPY_PATIENCE`` multiplies this and other limits.
        existing: kubeconfig of a cluster to use.
        settings: fields of :class:`_config.Settings`. They take precedence over the gates of
            ``JOBSETPY_FEATURE_GATES`` (``A=true,B=false``).
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        crds: Iterable[str | Path] = (),
        images: Iterable[str | Path] = (),
        binaries: str | Path | None = None,
        kubernetes: str = "",
        keep_logs: str | Path | None = None,
        timeout_s: float = 90.0,
        existing: str | Path | None = None,
        **settings: Any,
    ) -> None:
        self.name = _state.check_name(name or f"t{os.getpid()}-{secrets.token_hex(3)}")
        gates = _gates_of_environment() | settings.pop("feature_gates", {})
        self.settings = _config.Settings(feature_gates=gates, **settings)
        self._crds = [Path(path) for path in crds]
        self._images = [Path(path) for path in images]
        self._binaries = Path(binaries) if binaries else None
        self._kubernetes = kubernetes
        self._keep_logs = Path(keep_logs) if keep_logs else None
        self.timeout_s = patient(timeout_s)
        given = existing or os.environ.get("JOBSETPY_KUBECONFIG")
        self._existing = Path(given).resolve() if given else None
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._api: Api | None = None

    # -- properties ------------------------------------------------------------------------------

    @property
    def is_existing(self) -> bool:
        """True for an existing cluster, which is never started, stopped or broken here."""
        return self._existing is not None

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig with admin access from anywhere on this machine."""
        return self._existing or self.folder / "admin.kubeconfig"

    @property
    def exec_kubeconfig(self) -> Path:
        """Kubeconfig for commands after `exec_prefix`, with the API server's own address."""
        inside = self.folder / "inside.kubeconfig"
        return inside if not self._existing and inside.exists() else self.kubeconfig

    @property
    def exec_prefix(self) -> list[str]:
        """Words before a command that run it in the cluster's network, if it has its own."""
        if self._existing or not (self.folder / "inside.kubeconfig").exists():
            return []
        return ["nsenter", f"--net=/proc/{self._supervisor_id().pid}/ns/net", "--"]

    def env(self, *, inside: bool = False) -> dict[str, str]:
        """This process's environment with KUBECONFIG set, for `subprocess`."""
        path = self.exec_kubeconfig if inside else self.kubeconfig
        return {**os.environ, "KUBECONFIG": str(path)}

    @property
    def api(self) -> Api:
        """A minimal client of the API server."""
        self._own("a request")
        if self._api is None:
            self._api = Api(self.kubeconfig)
        return self._api

    @property
    def running(self) -> bool:
        """True if its supervisor runs; always true for an existing cluster."""
        if self._existing:
            return True
        data = _state.read_json(self.folder / "supervisor.json")
        return data is not None and ProcessId.from_json(data).alive()

    # -- start and end ---------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self if self._supervisor else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def start(self, *, detached: bool = False, progress: Progress | None = None) -> Self:
        """Start the cluster; return when it can be used.

        Args:
            detached: if true, the cluster continues to run after this process.
            progress: receives each step.

        Raises:
            ClusterError: the start failed; everything that was started is removed.
        """
        if self._existing:
            if not self._existing.exists():
                raise ClusterError(f"no such kubeconfig: {self._existing}")
            return self
        with progress or Progress() as shown:
            wanted = [*CONTROL_PLANE[:2]]
            wanted += ["kube-controller-manager"] if self.settings.controller_manager else []
            wanted += ["kube-scheduler"] if self.settings.scheduler else []
            wanted += ["kubelet"] if self.settings.nodes else []
            wanted += ["coredns"] if self.settings.dns else []
            if self._binaries:
                binaries = Binaries.in_folder(self._binaries, wanted)
            else:
                # Show progress in any case: this takes minutes the first time.
                binaries = Binaries.find(wanted, progress or Shown(), kubernetes=self._kubernetes)
            if self.settings.nodes:
                require_nodes(shown)
                _nodes.check_places(_state.clusters_dir(), binaries["kubelet"])
            folder, ports = _state.create_folder(self.name)
            try:
                self._bring_up(folder, ports, binaries, detached=detached, progress=shown)
            except BaseException:
                self.down()
                raise
        return self

    def _bring_up(
        self,
        folder: Path,
        ports: _config.Ports,
        binaries: Binaries,
        *,
        detached: bool,
        progress: Progress,
    ) -> None:
        settings = self.settings
        deadline = time.monotonic() + self.timeout_s
        _bringup.write_spec(self.name, folder, ports, binaries, settings)
        self._supervisor = _bringup.spawn_supervisor(folder, detached=detached)
        if not _bringup.supervisor_ready(folder, self._supervisor):
            raise ClusterError(f"the supervisor did not start:\n{self._tail('supervisor')}")
        # etcd starts meanwhile
        authority, tokens = _bringup.write_secrets(self.name, folder, ports, settings)
        if not settings.nodes:  # with nodes, etcd is in another network namespace
            self._wait(lambda: _listens(ports.etcd), "etcd", deadline)
            progress.step("etcd ready")
        self.start_component("kube-apiserver")
        for number, token in enumerate(tokens, 1):
            kubelet = binaries["kubelet"]
            _nodes.write_node(
                self.name, folder, number,
                settings=settings, kubelet=kubelet, authority=authority, token=token,
            )  # fmt: skip
            self.start_component(_config.node_name(number))
        if tokens:
            self._load_first_images(folder, deadline)
            progress.step("images loaded")
        self._wait(self.api.ready, "kube-apiserver", deadline)
        progress.step("API server ready")
        for path in self._crds:
            self._create_crd(path, deadline)
        if settings.dns:
            self._start_dns()
        for name, wanted in (
            ("kube-controller-manager", settings.controller_manager),
            ("kube-scheduler", settings.scheduler),
        ):
            if wanted:
                self.start_component(name)
        for number in range(1, settings.nodes + 1):
            self.start_component(f"{_config.node_name(number)}/kubelet")
        self._wait_until_usable(deadline, progress)

    def _wait_until_usable(self, deadline: float, progress: Progress) -> None:
        settings = self.settings
        if settings.controller_manager:
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self._wait(lambda: self.api.get(account), "kube-controller-manager", deadline)
            progress.step("controller manager ready")
        for number in range(1, settings.nodes + 1):
            node = _config.node_name(number)
            self._wait(partial(self._node_ready, node), f"{node}/kubelet", deadline)
            progress.step(f"{node} ready")
        if settings.dns:
            self._wait(lambda: _dns.serves(self.component_pid("coredns")), "coredns", deadline)
            progress.step("DNS ready")

    def _start_dns(self) -> None:
        for plural, role in _dns.ACCESS:
            url = f"/apis/{role['apiVersion']}/{plural}"
            status, text = self.api.request("POST", url, json.dumps(role))
            if status not in (201, 409):
                raise ClusterError(f"{url}: the API server says {status}: {text[:500]}")
        self.start_component("coredns")

    def _load_first_images(self, folder: Path, deadline: float) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            tars = [Path(place) / "pause.tar", Path(place) / "shell.tar"]
            pause_image().write(tars[0])
            shell_image().write(tars[1])
            for number in range(1, self.settings.nodes + 1):
                self._wait_for_containerd(_config.node_name(number), deadline)
            self.load_images([*tars, *self._images])

    def _wait_for_containerd(self, node: str, deadline: float) -> None:
        self._wait((self.folder / node / "ready").exists, node, deadline)

        def alive() -> None:
            self._raise_if_ended(f"{node}/containerd")

        _nodes.wait_for_containerd(self._init_of(node), alive, deadline - time.monotonic())

    def _init_of(self, node: str) -> int:
        return _nodes.init_pid(int(ask(self.folder, "status")[node]["pid"]))

    def _node_ready(self, node: str) -> bool:
        found = self.api.get(f"/api/v1/nodes/{node}") or {}
        conditions = found.get("status", {}).get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def load_images(self, tars: Iterable[str | Path]) -> None:
        """Import docker-archive files into every node.

        Raises:
            ClusterError: there is no node, or a node does not accept a file.
        """
        self._own("loading images")
        rows = ask(self.folder, "status")
        nodes = sorted(n for n, r in rows.items() if n.startswith("node-") and r["exit"] is None)
        if not nodes:
            raise ClusterError(f"cluster {self.name!r} has no nodes to load images into")
        snapshotter = _nodes.snapshotter_for(self.folder)
        for tar in tars:
            if not Path(tar).is_file():
                raise ClusterError(f"no such image file: {tar}")
            for node in nodes:
                _nodes.load_image(self._init_of(node), Path(tar), snapshotter=snapshotter)

    def _create_crd(self, path: Path, deadline: float) -> None:
        url = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        status, text = self.api.request("POST", url, path.read_text())
        if status != 201:
            raise ClusterError(f"{path}: the API server says {status}: {text[:500]}")
        spec = json.loads(text)["spec"]
        version = next(v["name"] for v in spec["versions"] if v["served"])
        # The condition "Established" is set shortly before the API server serves the resource.
        items = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1"
        self._wait(lambda: self.api.get(items), "kube-apiserver", deadline)

    def down(self) -> None:
        """Stop the cluster and remove its files. Idempotent, and possible after a crash."""
        if self._existing:
            return
        folder = self.folder
        if self._keep_logs and (folder / "log").is_dir():
            shutil.copytree(folder / "log", self._keep_logs / self.name, dirs_exist_ok=True)
        data = _state.read_json(folder / "supervisor.json")
        if self._supervisor:
            self._supervisor.terminate()  # it may not have written supervisor.json yet
        if data:
            ProcessId.from_json(data).end(grace_s=25.0)
        if self._supervisor:
            self._supervisor.wait(25.0)
            self._supervisor = None
        # In case the supervisor was killed. Its children end with it; this is a second safeguard.
        rows = _state.read_json(folder / "pids.json") or {}
        for row in rows.values():
            ProcessId.from_json(row).end(grace_s=0.0)
        spec = _state.read_json(folder / "spec.json") or {}
        for path in spec.get("cgroups", []):
            remove_cgroup(Path(path), time.monotonic() + 5.0)
        _state.remove_folder(folder)
        self._api = None

    def stop_apiserver(self, *, kill: bool = False) -> None:
        """Stop the API server: with SIGTERM (it completes its requests), or as in a crash."""
        self.stop_component("kube-apiserver", number=signal.SIGKILL if kill else signal.SIGTERM)

    def start_apiserver(self, *, timeout_s: float = 60.0) -> None:
        """Start the API server, at the same address as before, and wait until it is ready."""
        self.start_component("kube-apiserver")
        self._wait(self.api.ready, "kube-apiserver", time.monotonic() + patient(timeout_s))

    def restart_apiserver(self, *, kill: bool = False, timeout_s: float = 60.0) -> None:
        """Stop the API server, start it, and wait until it is ready."""
        self.stop_apiserver(kill=kill)
        self.start_apiserver(timeout_s=timeout_s)

    def move_to(self, kubernetes: str) -> None:
        """Change the release of the control plane, with the same etcd and the same kubelets.

        Args:
            kubernetes: the release, such as ``1.37.2``.
        """
        self._own("moving to another release")
        parts = [name for name in CONTROL_PLANE[1:] if name in self.components()]
        binaries = Binaries.find(parts, Shown(), kubernetes=kubernetes)
        for name in reversed(parts):
            self.stop_component(name)
        for name in parts:
            ask(self.folder, "program", name=name, program=str(binaries[name]))
            self.start_component(name)
            if name == "kube-apiserver":
                self._wait(self.api.ready, name, time.monotonic() + patient(60.0))

    def stop_node(self, node: str) -> None:
        """Simulate a power failure of a node: all processes end immediately, its disk remains."""
        first = ProcessId.of(self._init_of(node))
        (self.folder / node / "ready").unlink(missing_ok=True)
        self.kill_component(node)
        # The first process ends last: the kernel waits for all others of its namespace.
        if first and not wait_until(lambda: not first.alive(), patient(10.0)):
            raise ClusterError(f"{node} cannot be ended")

    def unplug_node(self, node: str) -> None:
        """Disconnect a node from the network: its processes continue, but are unreachable."""
        self._set_wire(node, "down")

    def plug_in_node(self, node: str) -> None:
        """Undo `unplug_node`."""
        self._set_wire(node, "up")

    def _set_wire(self, node: str, state: str) -> None:
        wire = _node_config.node_wire(int(node.removeprefix("node-")))["wire"]
        command = [*self.exec_prefix, "ip", "link", "set", wire, state]
        subprocess.run(command, check=True, timeout=patient(20))

    def start_node(self, node: str, *, timeout_s: float = 60.0) -> None:
        """Start a stopped node with its previous disk, and start its kubelet."""
        deadline = time.monotonic() + patient(timeout_s)
        # A rebooted machine has no old cgroups. If they remained, kubelet would search for their
        # containers for 15 seconds before it starts any pod.
        cgroup = _config.cgroup_name(self.name, int(node.removeprefix("node-")))
        for path in _cgroups.node_paths(cgroup):
            remove_cgroup(path, deadline)
        _cgroups.create(cgroup)
        self.start_component(node)
        self._wait_for_containerd(node, deadline)
        self.start_component(f"{node}/kubelet")

    @classmethod
    def names(cls) -> list[str]:
        """Names of this user's clusters on this machine, including crashed ones."""
        root = _state.clusters_dir()
        return sorted(entry.name for entry in root.iterdir()) if root.is_dir() else []

    def _own(self, what: str) -> None:
        if self._existing:
            raise ClusterError(f"{what} needs a cluster of our own, not {self._existing}")

    def _supervisor_id(self) -> ProcessId:
        data = _state.read_json(self.folder / "supervisor.json")
        if data is None or not ProcessId.from_json(data).alive():
            raise ClusterError(f"cluster {self.name!r} is not up")
        return ProcessId.from_json(data)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
