"""Processes of pods on this machine, where the nodes of ``hack/cluster`` are.

A host name does not identify a pod: a pod that replaces another one of an indexed Job has the same,
and so have pods of clusters of other tests. Mounts do: the kubelet gives each container a file in its
pod's folder, whose name is the pod's UID, within the cluster's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from hack.cluster import Cluster
from jobsetpy.api.core import Pod


@attrs.frozen
class Process:
    """A running process.

    Attributes:
        pid: its id on this machine.
        command: its command line; words end with a zero byte.
        environ: its variables, as ``NAME=VALUE``.
        inner: its id in its container. 1 is the container's first process; the parent of a new
            process has the same command line for a moment, but is not the first.
        mounts: its ``/proc/PID/mountinfo``.
    """

    pid: int
    command: bytes
    environ: list[bytes]
    inner: int
    mounts: str


def processes(text: str = "", cluster: Cluster | None = None) -> Iterator[Process]:
    """Return all processes with ``text`` in their command line, in ``cluster`` if it is given."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            if text.encode() not in command:
                continue
            environ = (folder / "environ").read_bytes().split(b"\0")
            ids = (folder / "status").read_text().partition("NSpid:")[2].split("\n")[0].split()
            inner = int(ids[-1]) if ids else 0
            mounts = (folder / "mountinfo").read_text()
        except OSError:
            continue  # it has just ended
        if cluster is None or f"/{cluster.folder.name}/" in mounts:
            yield Process(int(folder.name), command, environ, inner, mounts)


def process_of(pod: Pod, text: str = "", *, first: bool = True) -> int:
    """Return the id of a pod's process with ``text`` in its command line.

    Args:
        first: True for its container's first process.

    Raises:
        LookupError: there is none.
    """
    meta = pod.metadata
    hosts = {f"HOSTNAME={name}".encode() for name in (meta.name, pod_host_name(pod))}
    for each in processes(text):
        if (
            (each.inner == 1) is first
            and not hosts.isdisjoint(each.environ)
            and f"/pods/{meta.uid}/" in each.mounts
        ):
            return each.pid
    raise LookupError(f"no such process of pod {meta.name} runs on this machine")


def process_in(host: str, inner: int, variable: str = "") -> int:
    """Return the process id on this machine of a process with a known number in its container.

    Args:
        host: the pod's host name.
        inner: the number.
        variable: ``NAME=VALUE`` in the environment of the process only: processes of the pod's
            other containers have the same numbers.

    Raises:
        LookupError: it does not run.
    """
    marks = {mark.encode() for mark in (f"HOSTNAME={host}", variable) if mark}
    for each in processes():
        if each.inner == inner and marks <= set(each.environ):
            return each.pid
    raise LookupError(f"process {inner} of pod {host} does not run on this machine")


def pod_host_name(pod: Pod) -> str:
    """Return the host name of an indexed Job's pod: its name without the random end."""
    return pod.metadata.name.rpartition("-")[0]
