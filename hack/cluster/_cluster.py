"""The cluster as its users see it: start it, ask it, break it on purpose, end it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from . import _config, _state
from ._binaries import Binaries
from ._control import Api, ask
from ._errors import ClusterError
from ._identity import ProcessId, wait_until
from ._pki import Authority, make_key
from ._progress import Progress

SUPERVISOR = Path(__file__).with_name("_supervisor.py")
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
LOG_TAIL_LINES = 12


class Cluster:
    """A Kubernetes cluster of our own, or an existing one that is only used.

    As a context manager it ends with its block, and also if this process is killed inside it.
    ``start(detached=True)`` leaves it running until ``down()``, which any process may call by
    name.

    Where ``JOBSETPY_KUBECONFIG`` is set (or `existing` given) that cluster is used: nothing is
    started or stopped, `is_existing` is true, and what needs a cluster of our own raises
    ClusterError.

    Args:
        name: what `down`, `status` and the rest find it by; made up if None.
        nodes: how many real nodes; more than none needs Linux and root.
        controller_manager, scheduler: whether these run.
        etcd_args, apiserver_args, controller_manager_args, scheduler_args: put after ours, so
            that they win.
        scheduler_config, kubelet_config: top-level fields put over ours.
        feature_gates: given to every component.
        runtime_config: API groups to serve, such as ``{"scheduling.k8s.io/v1alpha1": True}``.
        max_requests_inflight, max_mutating_requests_inflight: the API server's limits.
        fsync: let etcd write to disk for real.
        crds: files, one CustomResourceDefinition each, made before the controller manager starts
            (its garbage collector then knows them at once, not half a minute later).
        images: docker-archive files every node gets.
        binaries: a folder with the programs, in place of the search.
        keep_logs: a folder that gets a copy of the logs when the cluster ends.
        timeout_s: how long the start may take, getting the programs not counted.
        existing: the kubeconfig of a cluster to use.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        nodes: int = 0,
        controller_manager: bool = True,
        scheduler: bool = True,
        etcd_args: Sequence[str] = (),
        apiserver_args: Sequence[str] = (),
        controller_manager_args: Sequence[str] = (),
        scheduler_args: Sequence[str] = (),
        scheduler_config: Mapping[str, Any] | None = None,
        kubelet_config: Mapping[str, Any] | None = None,
        feature_gates: Mapping[str, bool] | None = None,
        runtime_config: Mapping[str, bool] | None = None,
        max_requests_inflight: int | None = None,
        max_mutating_requests_inflight: int | None = None,
        fsync: bool = False,
        verbosity: int = 1,
        crds: Iterable[str | Path] = (),
        images: Iterable[str | Path] = (),
        binaries: str | Path | None = None,
        keep_logs: str | Path | None = None,
        timeout_s: float = 90.0,
        existing: str | Path | None = None,
    ) -> None:
        self.name = _state.check_name(name or f"t{os.getpid()}-{secrets.token_hex(3)}")
        self.settings = _config.Settings(
            nodes=nodes,
            controller_manager=controller_manager,
            scheduler=scheduler,
            etcd_args=tuple(etcd_args),
            apiserver_args=tuple(apiserver_args),
            controller_manager_args=tuple(controller_manager_args),
            scheduler_args=tuple(scheduler_args),
            scheduler_config=dict(scheduler_config or {}),
            kubelet_config=dict(kubelet_config or {}),
            feature_gates=dict(feature_gates or {}),
            runtime_config=dict(runtime_config or {}),
            max_requests_inflight=max_requests_inflight,
            max_mutating_requests_inflight=max_mutating_requests_inflight,
            fsync=fsync,
            verbosity=verbosity,
        )
        self._crds = [Path(path) for path in crds]
        self._images = [Path(path) for path in images]
        self._binaries = Path(binaries) if binaries else None
        self._keep_logs = Path(keep_logs) if keep_logs else None
        self._timeout_s = timeout_s
        given = existing or os.environ.get("JOBSETPY_KUBECONFIG")
        self._existing = Path(given).resolve() if given else None
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._api: Api | None = None

    # -- what it is ------------------------------------------------------------------------------

    @property
    def is_existing(self) -> bool:
        """Whether this is somebody else's cluster, never started, stopped or broken here."""
        return self._existing is not None

    @property
    def folder(self) -> Path:
        """Files and logs of this cluster; gone after `down`."""
        return _state.clusters_dir() / self.name

    @property
    def kubeconfig(self) -> Path:
        """Admin access from anywhere on this machine."""
        return self._existing or self.folder / "admin.kubeconfig"

    @property
    def exec_kubeconfig(self) -> Path:
        """Admin access for commands behind `exec_prefix`: the API server's own address."""
        inside = self.folder / "inside.kubeconfig"
        return inside if not self._existing and inside.exists() else self.kubeconfig

    @property
    def exec_prefix(self) -> list[str]:
        """Put before a command to run it in the cluster's network, if it has one of its own."""
        if self._existing or not (self.folder / "inside.kubeconfig").exists():
            return []
        return ["nsenter", f"--net=/proc/{self._supervisor_id().pid}/ns/net", "--"]

    def env(self, *, inside: bool = False) -> dict[str, str]:
        """This process's environment with KUBECONFIG set, for `subprocess`."""
        path = self.exec_kubeconfig if inside else self.kubeconfig
        return {**os.environ, "KUBECONFIG": str(path)}

    @property
    def api(self) -> Api:
        """A minimal client, for what needs no better one."""
        self._own("a request")
        if self._api is None:
            self._api = Api(self.kubeconfig)
        return self._api

    @property
    def running(self) -> bool:
        """Whether its supervisor runs (always true of an existing cluster)."""
        if self._existing:
            return True
        data = _state.read_json(self.folder / "supervisor.json")
        return data is not None and ProcessId.from_json(data).alive()

    # -- start and end ---------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def start(self, *, detached: bool = False, progress: Progress | None = None) -> Self:
        """Bring it up; returns when it can be used.

        Args:
            detached: let it live on when this process ends.
            progress: told of each step.

        Raises:
            ClusterError: it cannot be brought up; nothing is left of the attempt.
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
            if self._binaries:
                binaries = Binaries.in_folder(self._binaries, wanted)
            else:
                binaries = Binaries.find(wanted, shown)
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
        deadline = time.monotonic() + self._timeout_s
        self._write_spec(folder, ports, binaries)
        self._spawn_supervisor(folder, detached=detached)  # starts etcd at once
        self._write_secrets(folder, ports)
        self._wait(lambda: _listens(ports.etcd), "etcd", deadline)
        progress.step("etcd serves")
        self.start_component("kube-apiserver")
        self._wait(self.api.ready, "kube-apiserver", deadline)
        progress.step("API server ready")
        for path in self._crds:
            self._create_crd(path, deadline)
        for name, wanted in (
            ("kube-controller-manager", self.settings.controller_manager),
            ("kube-scheduler", self.settings.scheduler),
        ):
            if wanted:
                self.start_component(name)
        if self.settings.controller_manager:
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self._wait(lambda: self.api.get(account), "kube-controller-manager", deadline)
            progress.step("controller manager works")

    def _write_spec(self, folder: Path, ports: _config.Ports, binaries: Binaries) -> None:
        (folder / "log").mkdir()
        settings = self.settings
        argv = {
            "etcd": _config.etcd_argv(binaries["etcd"], folder, ports, settings),
            "kube-apiserver": _config.apiserver_argv(
                binaries["kube-apiserver"], folder, ports, settings
            ),
        }
        if settings.controller_manager:
            argv["kube-controller-manager"] = _config.controller_manager_argv(
                binaries["kube-controller-manager"], folder, settings
            )
        if settings.scheduler:
            argv["kube-scheduler"] = _config.scheduler_argv(
                binaries["kube-scheduler"], folder, settings
            )
            config = _config.scheduler_config(folder, settings)
            _state.write_private(folder / "scheduler.json", json.dumps(config, indent=1))
        spec: dict[str, Any] = {
            "components": {
                name: {"argv": words, "log": str(folder / "log" / f"{name}.log")}
                for name, words in argv.items()
            },
            "at_start": ["etcd"],
            "remove_folder": True,
        }
        _state.write_private(folder / "spec.json", json.dumps(spec, indent=1))

    def _write_secrets(self, folder: Path, ports: _config.Ports) -> None:
        authority = Authority(folder / "pki")
        make_key(folder / "pki" / "sa.key")
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        addresses = ["127.0.0.1", _config.SERVICE_ADDRESS, _config.BRIDGE_ADDRESS]
        authority.issue(
            "apiserver",
            subject="/CN=kube-apiserver",
            alt_names=(*(f"DNS:{n}" for n in names), *(f"IP:{a}" for a in addresses)),
        )
        users = [
            (secrets.token_hex(16), _config.ADMIN, ("system:masters",)),
            (secrets.token_hex(16), _config.CONTROLLER_MANAGER, ()),
            (secrets.token_hex(16), _config.SCHEDULER, ()),
        ]
        _state.write_private(folder / "pki" / "tokens.csv", _config.tokens_csv(users))
        server = f"https://127.0.0.1:{ports.api}"
        ca = authority.cert.read_bytes()
        files = ("admin", "controller-manager", "scheduler")
        for file, (token, _, _) in zip(files, users, strict=True):
            text = _config.kubeconfig(name=self.name, server=server, ca=ca, token=token)
            _state.write_private(folder / f"{file}.kubeconfig", text)

    def _spawn_supervisor(self, folder: Path, *, detached: bool) -> None:
        argv = [sys.executable, "-I", "-S", str(SUPERVISOR), str(folder)]
        if not detached:
            argv.append(str(os.getpid()))
        keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR", "LANG")}
        with (folder / "log" / "supervisor.log").open("ab") as log:
            self._supervisor = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=keep,
                cwd="/",
                start_new_session=True,
            )
        identity = ProcessId.of(self._supervisor.pid)
        assert identity is not None  # it is our child and not yet waited for
        _state.write_private(folder / "supervisor.json", json.dumps(identity.to_json()))
        started = self._supervisor
        wait_until(lambda: (folder / "ready").exists() or started.poll() is not None, 20.0, 0.005)
        if not (folder / "ready").exists():
            raise ClusterError(f"the supervisor did not start:\n{self._tail('supervisor')}")

    def _create_crd(self, path: Path, deadline: float) -> None:
        url = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        status, text = self.api.request("POST", url, path.read_text())
        if status != 201:
            raise ClusterError(f"{path}: the API server says {status}: {text[:500]}")
        name = json.loads(text)["metadata"]["name"]

        def established() -> bool:
            found = self.api.get(f"{url}/{name}") or {}
            conditions = found.get("status", {}).get("conditions", [])
            return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

        self._wait(established, "kube-apiserver", deadline)

    def down(self) -> None:
        """End everything of this cluster and remove its files; also after a crash, also twice."""
        if self._existing:
            return
        folder = self.folder
        if self._keep_logs and (folder / "log").is_dir():
            shutil.copytree(folder / "log", self._keep_logs / self.name, dirs_exist_ok=True)
        data = _state.read_json(folder / "supervisor.json")
        if data:
            ProcessId.from_json(data).end(grace_s=25.0)
        if self._supervisor:
            self._supervisor.wait(10)
            self._supervisor = None
        # For a supervisor that was killed: its children die with it, so this is a second fence.
        rows = _state.read_json(folder / "pids.json") or {}
        for row in rows.values():
            ProcessId.from_json(row).end(grace_s=0.0)
        _state.remove_folder(folder)
        self._api = None

    @classmethod
    def names(cls) -> list[str]:
        """Names of the clusters of this user on this machine, crashed ones too."""
        root = _state.clusters_dir()
        return sorted(entry.name for entry in root.iterdir()) if root.is_dir() else []

    # -- its parts -------------------------------------------------------------------------------

    def components(self) -> dict[str, dict[str, Any]]:
        """Each component ever started: its pid, and its exit status or None while it runs."""
        self._own("the list of components")
        return ask(self.folder, "status")

    def component_pid(self, name: str) -> int:
        """The pid of a running component.

        Raises:
            ClusterError: it does not run.
        """
        return self._component(name).pid

    def cpu_seconds(self, name: str) -> float:
        """User plus system time the component's present process has used."""
        return self._component(name).cpu_seconds()

    def rss_bytes(self, name: str) -> int:
        """Memory of the component's present process that is in RAM."""
        return self._component(name).rss_bytes()

    def start_component(self, name: str) -> int:
        """Start a component unless it runs; returns its pid, not waiting until it serves."""
        self._own("starting a component")
        return int(ask(self.folder, "start", name=name)["pid"])

    def signal_component(self, name: str, number: int) -> None:
        """Send a signal, such as SIGSTOP for a component that hangs."""
        self._own("a signal")
        ask(self.folder, "signal", name=name, signal=int(number))

    def stop_component(
        self, name: str, *, number: int = signal.SIGTERM, timeout_s: float = 30.0
    ) -> None:
        """Send the signal and wait for the end; SIGKILL after `timeout_s`."""
        for attempt, limit in ((number, timeout_s), (signal.SIGKILL, 10.0)):
            self.signal_component(name, attempt)
            if wait_until(lambda: self._ended(name), limit):
                return
        raise ClusterError(f"{name} cannot be ended")

    def kill_component(self, name: str) -> None:
        """End it with SIGKILL and wait until it is gone."""
        self.stop_component(name, number=signal.SIGKILL)

    def restart_component(self, name: str, *, number: int = signal.SIGTERM) -> int:
        """Stop it, start it; returns the new pid."""
        self.stop_component(name, number=number)
        return self.start_component(name)

    def stop_apiserver(self, *, kill: bool = False) -> None:
        """End the API server: with SIGTERM (it finishes what it is at), or as in a crash."""
        self.stop_component("kube-apiserver", number=signal.SIGKILL if kill else signal.SIGTERM)

    def start_apiserver(self, *, timeout_s: float = 60.0) -> None:
        """Start the API server, at the same address as before, and wait until it is ready."""
        self.start_component("kube-apiserver")
        self._wait(self.api.ready, "kube-apiserver", time.monotonic() + timeout_s)

    def restart_apiserver(self, *, kill: bool = False, timeout_s: float = 60.0) -> None:
        """Stop, start, wait until ready."""
        self.stop_apiserver(kill=kill)
        self.start_apiserver(timeout_s=timeout_s)

    def log_path(self, name: str) -> Path:
        """The log file of a component (``supervisor`` is one too)."""
        return self.folder / "log" / f"{name}.log"

    def logs(self) -> list[str]:
        """Names `log_path` knows."""
        return sorted(path.stem for path in (self.folder / "log").glob("*.log"))

    # -- helpers ---------------------------------------------------------------------------------

    def _own(self, what: str) -> None:
        if self._existing:
            raise ClusterError(f"{what} needs a cluster of our own, not {self._existing}")

    def _supervisor_id(self) -> ProcessId:
        data = _state.read_json(self.folder / "supervisor.json")
        if data is None or not ProcessId.from_json(data).alive():
            raise ClusterError(f"cluster {self.name!r} is not up")
        return ProcessId.from_json(data)

    def _component(self, name: str) -> ProcessId:
        row = self.components().get(name)
        found = ProcessId.of(row["pid"]) if row and row["exit"] is None else None
        if found is None:
            raise ClusterError(f"{name} does not run in cluster {self.name!r}")
        return found

    def _ended(self, name: str) -> bool:
        row = self.components().get(name)
        return row is None or row["exit"] is not None

    def _wait(self, condition: Callable[[], object], name: str, deadline: float) -> None:
        """Until `condition` holds; fails at once if component `name` has ended."""
        while not condition():
            row = self.components().get(name, {})
            if row.get("exit") is not None:
                tail = self._tail(name)
                raise ClusterError(f"{name} ended with status {row['exit']}; its log:\n{tail}")
            if time.monotonic() > deadline:
                tails = "\n".join(f"--- {log}\n{self._tail(log)}" for log in self.logs())
                raise ClusterError(
                    f"not up in {self._timeout_s:.0f} s, waiting for {name}:\n{tails}"
                )
            time.sleep(0.05)

    def _tail(self, name: str) -> str:
        try:
            lines = self.log_path(name).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "  (no log)"
        return "\n".join(f"  {line[:400]}" for line in lines[-LOG_TAIL_LINES:])


def _listens(port: int) -> bool:
    import socket

    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
