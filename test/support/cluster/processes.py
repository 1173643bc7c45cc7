"""Processes of pods on this machine, where the nodes of ``hack/cluster`` are.

A host name does not identify a pod: a pod that replaces another one of an indexed Job has the same,
and so have pods of clusters that other tests run side by side. Mounts do: the kubelet gives each
container a file of its pod's folder, whose name is the pod's UID, within the cluster's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from hack.cluster import Cluster
from jobsetpy.api.core import Pod


@attrs.frozen
class Process:
    """A process that runs now.

    Attributes:
        pid: its id on this machine.
        command: its command line; words end with a zero byte.
        environ: its variables, as ``NAME=VALUE``.
        is_first: whether it is its container's first process. A new one's parent has the same
            command line for a moment, but is none.
        mounts: its ``/proc/PID/mountinfo``.
    """

    pid: int
    command: bytes
    environ: list[bytes]
    is_first: bool
    mounts: str


def processes(text: str, cluster: Cluster | None = None) -> Iterator[Process]:
    """All with ``text`` in their command line, in ``cluster`` if that is given."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            if text.encode() not in command:
                continue
            environ = (folder / "environ").read_bytes().split(b"\0")
            ids = (folder / "status").read_text().partition("NSpid:")[2].split("\n")[0].split()
            mounts = (folder / "mountinfo").read_text()
        except OSError:
            continue  # it has just ended
        if cluster is None or f"/{cluster.folder.name}/" in mounts:
            yield Process(int(folder.name), command, environ, ids[-1:] == ["1"], mounts)


def process_of(pod: Pod, text: str = "", *, first: bool = True) -> int:
    """Process id of a pod's process with ``text`` in its command line.

    Args:
        first: whether it is its container's first process.

    Raises:
        LookupError: none runs now.
    """
    meta = pod.metadata
    hosts = {f"HOSTNAME={name}".encode() for name in (meta.name, pod_host_name(pod))}
    for each in processes(text):
        if (
            each.is_first is first
            and not hosts.isdisjoint(each.environ)
            and f"/pods/{meta.uid}/" in each.mounts
        ):
            return each.pid
    raise LookupError(f"no such process of pod {meta.name} runs on this machine")


def pod_host_name(pod: Pod) -> str:
    """An indexed Job's pods have the pod's name without its random end as host name."""
    return pod.metadata.name.rpartition("-")[0]
