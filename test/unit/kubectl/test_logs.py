"""``kubectl jobset logs``: lines of all ranks, each once."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from jobsetpy.errors import StreamBrokenError
from jobsetpy.kubectl import logs, status
from jobsetpy.kubectl.cluster import Cluster
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.kubeconfig import Target


def line(second, text):
    """Return a line of a log, with its time."""
    return f"2026-01-01T00:00:{second:02}.000000000Z {text}\n".encode()


class Stream:
    """A body in parts; an exception breaks the connection."""

    def __init__(self, found):
        self.status = found if isinstance(found, int) else 200
        self.headers = {}
        self._parts = [] if isinstance(found, int) else list(found)

    async def read(self):
        """Return the next part."""
        part = self._parts.pop(0) if self._parts else b""
        if isinstance(part, Exception):
            raise part
        return part


class Logs:
    """A transport with logs of pods, one after the other for each pod."""

    def __init__(self, of):
        self.of = {name: list(found) for name, found in of.items()}
        self.queries = []

    @asynccontextmanager
    async def stream(self, request):
        """Yield the next log of a pod."""
        self.queries.append(dict(request.query))
        left = self.of[request.path.split("/")[-2]]
        yield Stream(left.pop(0) if left else [])


def found(*pods, state="Running"):
    """Return a described JobSet of two Jobs."""
    return {
        "state": state,
        "replicatedJobs": [
            {"jobs": [{"name": job, "seats": 2, "pods": [
                {"name": name, "index": index, "phase": phase, "container": "worker"} | more
                for of, name, index, phase, more in pods if of == job
            ]} for job in ("a", "b")]}
        ],
    }  # fmt: skip


RUNS = ("a", "a-0", 0, "Running", {})
OTHER = ("b", "b-1", 1, "Running", {})


def cluster_with(**of):
    """Return a cluster with logs of pods."""
    of = {name.replace("_", "-"): found for name, found in of.items()}
    return Cluster(Target(Logs(of), "https://x", "default"))


@pytest.fixture
def looks(monkeypatch):
    """Function that sets what each look at the JobSet finds."""
    monkeypatch.setattr(logs, "EVERY_S", 0.0)
    monkeypatch.setattr(status, "EVERY_S", 0.0)

    def set_looks(*found):
        left = list(found)

        async def look(*_):
            one = left.pop(0)
            if isinstance(one, Exception):
                raise one
            return one

        monkeypatch.setattr(status, "look", look)

    return set_looks


def test_ranks_go_through_all_jobs():
    """Pods that have not started have no log; spares are last, without a rank."""
    spare = ("a", "a-2", 2, "Running", {"spare": "ready"})
    pending = ("b", "b-0", 0, "Pending", {})
    pods = logs.pods_of(found(spare, OTHER, RUNS, pending), None)

    assert [(pod.name, pod.rank) for pod in pods] == [("a-0", 0), ("b-1", 3), ("a-2", None)]
    assert [pod.name for pod in logs.pods_of(found(RUNS, OTHER), [3])] == ["b-1"]


async def test_following_goes_on_after_an_outage(looks, capsys):
    """The log is asked for from the last line; lines that were printed are not repeated."""
    cluster = cluster_with(
        a_0=[
            [line(1, "one")[:30], line(1, "one")[30:], line(2, "two"), StreamBrokenError("gone")],
            [line(2, "two"), line(3, "three")],
        ],
        b_1=[[line(1, "\x1b[2Jother")]],
    )
    down = StreamBrokenError("connection refused")
    ended = ("a", "a-0", 0, "Succeeded", {})
    looks(found(RUNS), down, down, found(ended, state="Running"), found(OTHER, state="Completed"))
    await logs.follow(cluster, "x", None)
    out, err = capsys.readouterr()

    assert out.splitlines() == [
        "[0 a-0] one", "[0 a-0] two", "[0 a-0] three", "[3 b-1]  [2Jother",
    ]  # fmt: skip
    assert err.splitlines() == [
        "a connection broke: its log continues as soon as the API server answers",
        "Unable to connect to the server: connection refused",
    ]
    assert cluster._transport.queries[1]["sinceTime"] == "2026-01-01T00:00:02Z"


async def test_follower_of_a_rank_without_a_pod_is_told_what_it_waits_for(looks, capsys):
    """Once, until there is one."""
    looks(found(RUNS), found(RUNS), found(RUNS, OTHER), found(OTHER, state="Completed"))
    await logs.follow(cluster_with(b_1=[[line(1, "here")]]), "x", [3])
    out, err = capsys.readouterr()

    assert out == "[3 b-1] here\n"
    assert err == (
        "waiting for a pod of rank 3 that has started; kubectl jobset status shows the pods\n"
    )


async def test_log_of_a_pod_that_is_gone_is_reported(looks, capsys):
    """The others are printed; the exit code is 1."""

    class Options:
        name, rank, follow = "x", None, False

    looks(found(RUNS, OTHER))
    code = await logs.run(cluster_with(a_0=[404], b_1=[[line(1, "here")]]), Options)
    out, err = capsys.readouterr()

    assert (code, out) == (1, "[3 b-1] here\n")
    assert err == "pod a-0 is gone, and its log with it\n"
    looks(found(RUNS, OTHER), found())
    Options.rank = [9]
    with pytest.raises(
        CommandError, match="has no pods with logs of --rank 9, but of 0 to 3: logs"
    ):
        await logs.run(cluster_with(), Options)
    with pytest.raises(CommandError, match="has no pods with logs: logs go with their pods"):
        await logs.run(cluster_with(), Options)


async def test_number_of_connections_is_bounded(looks, capsys, monkeypatch):
    """It says so, and how to choose."""
    monkeypatch.setattr(logs, "MAX_STREAMS", 1)
    looks(found(RUNS, OTHER), found(OTHER, state="Completed"))
    cluster = cluster_with(a_0=[[line(1, "one")]], b_1=[[line(1, "two")]])
    await logs.follow(cluster, "x", None)
    out, err = capsys.readouterr()

    assert out.splitlines() == ["[0 a-0] one", "[3 b-1] two"]
    assert err == "following 1 pods: others come when these end, or by --rank\n"
