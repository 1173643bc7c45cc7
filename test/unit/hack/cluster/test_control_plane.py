"""A real control plane: it starts, and nothing is left at the end."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from hack.cluster import Cluster, ClusterError
from hack.cluster._identity import ProcessId, find_child, wait_until
from support import patience
from support.commands import run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
TOOL = Path(__file__).resolve().parents[4] / "hack" / "cluster"
BARE = {"controller_manager": False, "scheduler": False}


def processes_of(folder):
    """Processes that have the folder in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in text and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def tool(*words):
    return run(sys.executable, TOOL, *words, timeout_s=200)


def test_all_components_are_started_by_the_command_line(state):
    """`up`, `status`, `env`, `exec`, `logs` and `down` work; a service account shows the controllers."""
    up = tool("up", "--name", "cli", "--feature-gate", "AllAlpha=false", "--scheduler-arg=--v=2")
    assert up.returncode == 0, up.stderr
    try:
        again = tool("up", "--name", "cli")
        assert again.returncode == 1
        assert "already exists" in again.stderr
        status = tool("status", "--name", "cli")
        assert status.returncode == 0, status.stdout
        assert "kube-scheduler" in status.stdout
        line = tool("env", "--name", "cli").stdout
        assert line.startswith("export KUBECONFIG=")
        shown = tool("exec", "--name", "cli", "--", "printenv", "KUBECONFIG").stdout
        assert shown.strip() == line.strip().partition("=")[2]
        assert "etcd" in tool("logs", "--name", "cli").stdout
        cluster = Cluster(name="cli")
        assert cluster.api.get("/api/v1/namespaces/default/serviceaccounts/default")
        refused = tool("images", "load", "x.tar", "--name", "cli")
        assert "no nodes" in refused.stderr
    finally:
        folder = state / "clusters" / "cli"
        down = tool("down", "--name", "cli")
    assert down.returncode == 0, down.stderr
    assert not folder.exists()
    assert processes_of(folder) == []


def test_a_component_that_ends_is_reported_with_its_log(state):
    """A wrong flag is noticed immediately, not after the time-out, and nothing is left."""
    with pytest.raises(ClusterError, match="no-such-switch"):
        Cluster(apiserver_args=["--no-such-switch"], name="wrong", **BARE).start()
    assert Cluster.names() == []


OWNER = """
import os, signal
from hack.cluster import Cluster
with Cluster(name="owned", controller_manager=False, scheduler=False):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_cluster_ends_when_its_owner_is_killed(state):
    """The supervisor cleans up, since a killed test process cannot."""
    assert run(sys.executable, "-c", OWNER, timeout_s=200).returncode == -signal.SIGKILL
    folder = state / "clusters" / "owned"
    assert wait_until(
        lambda: not folder.exists() and not processes_of(folder), patience.scaled(20.0)
    )


def test_down_cleans_up_after_a_killed_supervisor(state):
    """The components end with it; `down` removes the folder."""
    cluster = Cluster(name="crashed", **BARE).start()
    folder = cluster.folder
    rows = json.loads((folder / "pids.json").read_text())
    supervisor = ProcessId.from_json(json.loads((folder / "supervisor.json").read_text()))
    assert find_child(supervisor.pid) in [row["pid"] for row in rows.values()]
    supervisor.send(signal.SIGKILL)
    components = [ProcessId.from_json(row) for row in rows.values()]
    assert wait_until(lambda: not any(c.alive() for c in components), patience.scaled(10.0))
    assert not cluster.running
    cluster.down()
    assert not folder.exists()
