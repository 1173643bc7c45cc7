"""Process 1 of a node: sets up the node's view of the machine, then runs containerd and kubelet.

`unshare` runs it in new network, mount, uts, ipc and pid namespaces, as a script (for the reason
in `_supervisor.py`): ``python -E -s -S _node_init.py FOLDER``. Not with ``-I``, which would exclude
this folder with `_supervisor` from the path. All mounts are in its own mount namespace, so they
end with the last process of the node; the machine's files are not changed.
"""

import ctypes
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _supervisor import Supervisor, ip_batch  # type: ignore[import-not-found] # in the same folder

MS_BIND, MS_REC, MS_SHARED = 4096, 1 << 14, 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = (source.encode(), target.encode(), kind.encode(), flags, options.encode())
    if LIBC.mount(*words):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} {target}: {os.strerror(number)}")


def make_view(setup: dict[str, Any]) -> None:
    """Mount the node's own /run, /var/lib and /var/log, so that the usual paths work."""
    socket.sethostname(setup["hostname"])
    # kubelet requires "shared" propagation of mounts (here within this namespace only).
    mount("none", "/", flags=MS_REC | MS_SHARED)
    for source, target in setup["binds"]:
        Path(source).mkdir(parents=True, exist_ok=True)
        mount(source, target, flags=MS_BIND)
    mount("tmpfs", "/run", "tmpfs", options="mode=755")
    for name in setup["sysctls"]:
        # kubelet writes these at its start, for the whole machine: bind plain files over them.
        real = Path("/proc/sys") / name
        if real.exists():
            copy = Path(setup["sysctl_folder"]) / name.replace("/", "_")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(real.read_text())
            mount(str(copy), str(real), flags=MS_BIND)


def make_network(setup: dict[str, Any]) -> None:
    deadline = time.monotonic() + 10.0
    # /sys is that of the machine and does not show this namespace's network devices.
    while "eth0:" not in Path("/proc/net/dev").read_text():
        if time.monotonic() > deadline:
            raise TimeoutError("the supervisor did not give this node its eth0")
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
