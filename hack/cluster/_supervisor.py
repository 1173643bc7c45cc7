"""The process that owns a cluster's processes, so that none of them can outlive it.

It runs as a script with the interpreter's ``-I -S`` flags. It must start in milliseconds, so it
imports only a few modules of the standard library, and no others of the package.

    python -I -S _supervisor.py FOLDER [OWNER_PID]

FOLDER contains ``spec.json`` (`_bringup.py` writes it). Clean-up is guaranteed as follows:

* every component has PR_SET_PDEATHSIG=SIGKILL: the kernel ends it when this process ends;
* with OWNER_PID (a test process), a pidfd reports that the owner has ended, for whatever reason,
  and everything is removed;
* this process is a child subreaper, so that it can wait for grandchildren too (the first process
  of a node's pid namespace);
* on SIGTERM it ends the components, waits until the last is reaped, removes cgroups and FOLDER;
* a cluster's network is an unnamed namespace: it ends with its last process.

`_node_init.py` uses the same class as process 1 of a node's pid namespace.
A command is one JSON line over ``FOLDER/ctl.sock``; the answer is one JSON line.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
END_TIMEOUT_S = 15.0
LISTEN_FD = 3  # a component's descriptor of the inherited listening socket
DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE)

Row = dict[str, Any]  # {"pid", "start_time", "exit"}; "exit" is None while it runs


def log(*words: object) -> None:
    print(f"{time.strftime('%H:%M:%S')}", *words, flush=True)


def start_time(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text[text.rindex(")") + 2 :].split()[19])


def spawn(
    argv: list[str], *, log_path: str, env: dict[str, str], listener: socket.socket | None = None
) -> int:
    """Start `argv` as a child that ends with this process; return its pid."""
    parent = os.getpid()
    out = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if pid := os.fork():
        os.close(out)
        return pid
    try:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before the call above
            os._exit(125)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        if listener:
            os.dup2(listener.fileno(), LISTEN_FD)
        signal.set_wakeup_fd(-1)
        for number in DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(argv[0], argv, env)
    except BaseException as error:
        os.write(2, f"cannot start {argv[0]}: {error}\n".encode())
    os._exit(126)


def ip_batch(lines: list[str]) -> None:
    """Run lines with ``ip -batch``; raise an error if one fails."""
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True, timeout=20)


class Supervisor:
    def __init__(self, folder: Path, owner: int | None = None) -> None:
        self.folder = folder
        self.spec: dict[str, Any] = json.loads((folder / "spec.json").read_text())
        self.owner = owner
        self.table: dict[str, Row] = {}
        self.ending = False
        self.boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self.listener: socket.socket | None = None
        self.wake_r, self.wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self.wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.on_term)
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def on_term(self, *_: object) -> None:
        self.ending = True

    def introduce(self) -> None:
        """Record this process's identity before anything else: `down` needs it."""
        me = os.getpid()
        row = {"pid": me, "start_time": start_time(me), "boot": self.boot}
        new = self.folder / "supervisor.json.new"
        new.write_text(json.dumps(row))
        new.rename(self.folder / "supervisor.json")

    def control_socket(self) -> socket.socket:
        # By the folder's descriptor, because a socket's path is limited to 107 bytes.
        (self.folder / "ctl.sock").unlink(missing_ok=True)  # left by a node that was stopped
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(f"/proc/self/fd/{fd}/ctl.sock")
        os.close(fd)
        sock.listen(16)
        return sock

    def private_network(self, setup: dict[str, Any]) -> None:
        """Move to a new network namespace; existing sockets stay in the machine's."""
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", setup["listen"]))
        self.listener.listen(128)
        if LIBC.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot create a network namespace")
        ip_batch(setup["ip"])
        # /proc/sys/net is that of the process that opens it
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def connect_node(self, pid: int, setup: dict[str, Any]) -> None:
        """Connect the network namespace of `pid` to this one's bridge, by a veth pair."""
        own, wire = Path("/proc/self/ns/net").stat().st_ino, setup["wire"]
        deadline = time.monotonic() + 5.0
        while Path(f"/proc/{pid}/ns/net").stat().st_ino == own:
            if time.monotonic() > deadline:
                raise TimeoutError("the node's network namespace was not created in time")
            time.sleep(0.002)
        subprocess.run(["ip", "link", "del", wire], capture_output=True, check=False, timeout=20)
        ip_batch([f"link add {wire} type veth peer name eth0 netns {pid}", *setup["ip"]])

    def record(self) -> None:
        rows = {
            name: {"pid": row["pid"], "start_time": row["start_time"], "boot": self.boot}
            for name, row in self.table.items()
            if row["exit"] is None
        }
        new = self.folder / "pids.json.new"
        new.write_text(json.dumps(rows))
        new.rename(self.folder / "pids.json")

    def start(self, name: str) -> Row:
        row = self.table.get(name)
        if row and row["exit"] is None:
            return row
        component = self.spec["components"][name]
        pid = spawn(
            component["argv"],
            log_path=component["log"],
            env={**os.environ, **component.get("env", {})},
            listener=self.listener if component.get("inherit_listener") else None,
        )
        self.table[name] = {"pid": pid, "start_time": start_time(pid), "exit": None}
        self.record()
        log("started", name, pid)
        if "network" in component:
            self.connect_node(pid, component["network"])
        return self.table[name]

    def reap(self) -> bool:
        """Reap ended children; return True while there is one left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            for name, row in self.table.items():
                if row["pid"] == pid and row["exit"] is None:
                    row["exit"] = os.waitstatus_to_exitcode(status)
                    log("ended", name, pid, "status", row["exit"])

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        self.reap()
        match request["op"]:
            case "start":
                return self.start(request["name"])
            case "signal":
                # An unreaped child keeps its pid, so this cannot reach another process.
                row = self.table.get(request["name"])
                if row and row["exit"] is None:
                    os.kill(row["pid"], request["signal"])
                return row or {}
            case "program":  # for the next start of a component
                self.spec["components"][request["name"]]["argv"][0] = request["program"]
                return {}
            case "status":
                return self.table
            case other:
                raise ValueError(f"no such operation: {other}")

    def serve_one(self, sock: socket.socket) -> None:
        connection, _ = sock.accept()
        with connection:
            connection.settimeout(2.0)
            with contextlib.suppress(OSError):
                line = connection.makefile("rb").readline()
                answer: dict[str, Any]
                try:
                    answer = {"ok": self.handle(json.loads(line))}
                except Exception as error:
                    answer = {"error": f"{type(error).__name__}: {error}"}
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def run(self) -> None:
        sock = self.control_socket()
        wanted: list[Any] = [sock, self.wake_r]
        owner_fd = None
        if self.owner:
            owner_fd = os.pidfd_open(self.owner)
            wanted.append(owner_fd)
            self.ending = os.getppid() != self.owner
        if "private_network" in self.spec:
            self.private_network(self.spec["private_network"])
        for name in self.spec.get("at_start", []):
            self.start(name)
        (self.folder / "ready").touch()
        while not self.ending:
            ready, _, _ = select.select(wanted, [], [])
            if self.wake_r in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake_r, 4096)
                self.reap()
            if owner_fd in ready:
                log("the owner has ended")
                return
            if sock in ready:
                self.serve_one(sock)
        log("received a signal to end")

    def end(self) -> None:
        """End all components and their descendants, until this process has no child left."""
        for row in reversed(self.table.values()):
            if row["exit"] is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(row["pid"], signal.SIGKILL)
        deadline = time.monotonic() + END_TIMEOUT_S
        while self.reap() and time.monotonic() < deadline:
            select.select([self.wake_r], [], [], 0.02)
        for path in self.spec.get("cgroups", []):
            remove_cgroup(Path(path), deadline)
        if self.spec.get("remove_folder"):
            shutil.rmtree(self.folder, ignore_errors=True)


def remove_cgroup(path: Path, deadline: float) -> None:
    """Remove a cgroup and all below it; retry, since the kernel lags behind the last process."""
    while path.is_dir():
        for folder, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        if not path.is_dir() or time.monotonic() > deadline:
            return
        time.sleep(0.05)


def main() -> None:
    owner = int(sys.argv[2]) if len(sys.argv) > 2 else None
    supervisor = Supervisor(Path(sys.argv[1]).resolve(), owner)
    supervisor.introduce()
    try:
        supervisor.run()
    finally:
        supervisor.end()


if __name__ == "__main__":
    main()
