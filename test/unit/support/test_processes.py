"""Processes of pods with the same host name."""

import os
import subprocess
from contextlib import ExitStack

import pytest

from hack.cluster._requirements import require_programs
from jobsetpy.api.core import Pod
from jobsetpy.api.meta import ObjectMeta
from support import patience
from support.cluster.processes import process_of

TEXT = "sleep 1000001"


@pytest.fixture
def pods(tmp_path):
    """Pods of two clusters with the same name, and the process of each."""
    if os.geteuid() != 0:
        pytest.skip("mounts need root")
    require_programs({"unshare": "util-linux"})
    found = {}
    with ExitStack() as stack:
        for uid in ("uid-1", "uid-2"):
            folder = tmp_path / "pods" / uid / "containers"
            folder.mkdir(parents=True)
            script = f"mount --bind {folder} /mnt; exec sh -c 'sleep 1000001; exit'"
            process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", script],
                env={**os.environ, "HOSTNAME": "sidecar-workers-0-0"},
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, 9)
            pod = Pod(metadata=ObjectMeta(name="sidecar-workers-0-0-x7k2p", uid=uid))
            found[uid] = pod, process.pid
        yield found


async def test_process_of_a_pod_is_found_when_pods_of_other_clusters_have_the_same_name(pods):
    """Otherwise a test would kill a process of another one."""
    for pod, pid in pods.values():
        await patience.eventually(lambda pod=pod, pid=pid: found_pid(pod) == pid)
    with pytest.raises(LookupError, match="sidecar-workers-0-0-x7k2p"):
        process_of(Pod(metadata=ObjectMeta(name="sidecar-workers-0-0-x7k2p", uid="uid-3")), TEXT)


def found_pid(pod):
    """Return the process that is found for a pod, once it has its mount."""
    try:
        return process_of(pod, f"sh\0-c\0{TEXT}", first=False)
    except LookupError:
        return None
