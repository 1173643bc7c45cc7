"""Process 1 of one node: makes the node's view of the machine, then keeps containerd and kubelet.

Run by `unshare` in new network, mount, uts, ipc and pid namespaces, as a script (`_supervisor.py`
says why): ``python -E -s -S _node_init.py FOLDER``. Not with ``-I``, which would leave out this
folder, where `_supervisor` is. Everything it mounts is in its own mount namespace, so it is gone
when the last process of the node is; the machine's files stay as they are.
"""

import ctypes
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _supervisor import Supervisor, ip_batch  # type: ignore[import-not-found] # beside this script

MS_BIND, MS_REC, MS_SHARED = 4096, 1 << 14, 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = (source.encode(), target.encode(), kind.encode(), flags, options.encode())
    if LIBC.mount(*words):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} {target}: {os.strerror(number)}")


def make_view(setup: dict[str, Any]) -> None:
    """A /run, /var/lib and /var/log of the node's own, so that all usual paths work in it."""
    socket.sethostname(setup["hostname"])
    # kubelet wants to see later mounts in containers, hence "shared" (within this namespace only)
    mount("none", "/", flags=MS_REC | MS_SHARED)
    for source, target in setup["binds"]:
        Path(source).mkdir(parents=True, exist_ok=True)
        mount(source, target, flags=MS_BIND)
    mount("tmpfs", "/run", "tmpfs", options="mode=755")
    for name in setup["sysctls"]:
        # kubelet sets these for the whole machine at its start: it gets plain files to write to
        real = Path("/proc/sys") / name
        if real.exists():
            copy = Path(setup["sysctl_folder"]) / name.replace("/", "_")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(real.read_text())
            mount(str(copy), str(real), flags=MS_BIND)


def make_network(setup: dict[str, Any]) -> None:
    deadline = time.monotonic() + 10.0
    # A process's own network devices are not in its /sys here, which is that of the machine.
    while "eth0:" not in Path("/proc/net/dev").read_text():
        if time.monotonic() > deadline:
            raise TimeoutError("no eth0 was given to this node")
        time.sleep(0.005)
    ip_batch(setup["ip"])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def main() -> None:
    supervisor = Supervisor(Path(sys.argv[1]))
    make_view(supervisor.spec["view"])
    make_network(supervisor.spec["network"])
    supervisor.run()


if __name__ == "__main__":
    try:
        main()
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"node: {error}")
