"""Control of the processes of a cluster."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import _state
from ._control import ask
from ._errors import ClusterError
from ._identity import ProcessId, find_child, patient, wait_until

LOG_TAIL_LINES = 12


class Components:
    """The part of `Cluster` that deals with its processes.

    Components are ``etcd``, ``kube-apiserver``, ``kube-controller-manager``, ``kube-scheduler``,
    ``coredns`` (with ``dns``); with nodes also ``forwarder``, ``node-1`` (all of that node),
    ``node-1/containerd``, ``node-1/kubelet``.
    """

    name: str
    timeout_s: float

    @property
    def folder(self) -> Path:
        """Folder with files and logs of this cluster; `down` removes it."""
        return _state.clusters_dir() / self.name

    def _own(self, what: str) -> None:
        """Raise ClusterError if this is an existing cluster, which does not support `what`."""

    def components(self) -> dict[str, dict[str, Any]]:
        """Each component that was started: its pid, and its exit status or None while it runs."""
        self._own("the list of components")
        rows = ask(self.folder, "status")
        for node in [n for n, row in rows.items() if n.startswith("node-") and row["exit"] is None]:
            init = find_child(rows[node]["pid"])
            if init is None or not (self.folder / node / "ready").exists():
                continue
            for name, row in ask(self.folder / node, "status").items():
                rows[f"{node}/{name}"] = self._seen_from_here(init, row)
        return rows

    def component_pid(self, name: str) -> int:
        """Return the pid of a running component.

        Raises:
            ClusterError: the component does not run.
        """
        return self._component(name).pid

    def cpu_seconds(self, name: str) -> float:
        """User plus system time of the component's current process, in seconds."""
        return self._component(name).cpu_seconds()

    def rss_bytes(self, name: str) -> int:
        """Resident memory of the component's current process."""
        return self._component(name).rss_bytes()

    def start_component(self, name: str) -> None:
        """Start a component unless it runs; do not wait until it is ready."""
        folder, own_name = self._supervisor_of(name)
        ask(folder, "start", name=own_name, timeout_s=patient(30.0))

    def signal_component(self, name: str, number: int) -> None:
        """Send a signal, such as SIGSTOP for a component that hangs."""
        folder, own_name = self._supervisor_of(name)
        ask(folder, "signal", name=own_name, signal=int(number))

    def stop_component(
        self, name: str, *, number: int = signal.SIGTERM, timeout_s: float = 30.0
    ) -> None:
        """Send the signal and wait for the process to end; send SIGKILL after `timeout_s`."""
        folder, own_name = self._supervisor_of(name)

        def ended() -> bool:
            row = ask(folder, "status").get(own_name)
            return row is None or row["exit"] is not None

        for attempt, limit in ((number, timeout_s), (signal.SIGKILL, 10.0)):
            self.signal_component(name, attempt)
            if wait_until(ended, patient(limit)):
                return
        raise ClusterError(f"{name} cannot be ended")

    def kill_component(self, name: str) -> None:
        """Send SIGKILL and wait for the process to end."""
        self.stop_component(name, number=signal.SIGKILL)

    def log_path(self, name: str) -> Path:
        """Return the log file of a component, or of the ``supervisor``."""
        return self.folder / "log" / f"{name.replace('/', '-')}.log"

    def logs(self) -> list[str]:
        """Names for `log_path`."""
        return sorted(path.stem for path in (self.folder / "log").glob("*.log"))

    # -- helpers ---------------------------------------------------------------------------------

    def _supervisor_of(self, name: str) -> tuple[Path, str]:
        self._own(f"control of {name}")
        node, slash, own_name = name.partition("/")
        return (self.folder / node, own_name) if slash else (self.folder, name)

    def _component(self, name: str) -> ProcessId:
        row = self.components().get(name)
        found = ProcessId.of(row["pid"]) if row and row["exit"] is None else None
        if found is None:
            raise ClusterError(f"{name} does not run in cluster {self.name!r}")
        return found

    @staticmethod
    def _seen_from_here(init: int, row: dict[str, Any]) -> dict[str, Any]:
        """Return the machine's process for a pid in a node's own pid namespace."""
        pid = find_child(init, inner_pid=row["pid"]) if row["exit"] is None else None
        return {
            **row,
            "pid": pid or 0,
            "exit": row["exit"] if pid or row["exit"] is not None else 0,
        }

    def _wait(self, condition: Callable[[], object], name: str, deadline: float) -> None:
        """Wait until `condition` holds; fail immediately if component `name` has ended."""
        while not condition():
            self._raise_if_ended(name)
            if time.monotonic() > deadline:
                tails = "\n".join(f"--- {log}\n{self._tail(log)}" for log in self.logs())
                raise ClusterError(f"not up in {self.timeout_s:.0f} s; waited for {name}:\n{tails}")
            time.sleep(0.05)

    def _raise_if_ended(self, name: str) -> None:
        row = self.components().get(name, {})
        if row.get("exit") is not None:
            tail = self._tail(name)
            raise ClusterError(f"{name} ended with status {row['exit']}; its log:\n{tail}")

    def _tail(self, name: str) -> str:
        try:
            lines = self.log_path(name).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "  (no log)"
        return "\n".join(f"  {line[:400]}" for line in lines[-LOG_TAIL_LINES:])
