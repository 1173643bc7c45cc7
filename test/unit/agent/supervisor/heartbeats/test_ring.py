"""Agents' rings with real sockets, each agent with its own address of the loopback device."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from jobsetpy.agent.supervisor.heartbeats.ring import Ring
from jobsetpy.agent.supervisor.heartbeats.rules import Members, Motion, Part, RingRules, motion_of
from jobsetpy.agent.supervisor.progress.progress import Progress, ProgressRules
from support.agents.agent_process import free_udp_port
from support.patience import eventually

INTERVAL_S = 0.25
UID = "0f5c0f5c-0000-4000-8000-000000000001"


class Group:
    """Agents of a Job's pods, some of which may be missing."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size
        self.port = free_udp_port()
        self.agents: dict[int, Ring] = {}
        self.reports: dict[int, list[str | None]] = {}
        self.logged: list[tuple[str, dict[str, object]]] = []
        self.lookups: list[int] = []
        self.has_names = True
        self.workers: dict[int, Progress] = {}

    def start(self, *positions: int, uid: str = UID) -> None:
        """Start agents, each on its own node."""
        for position in positions:
            members = Members((Part("w", 1, self.size),))
            rules = RingRules(
                interval_s=INTERVAL_S,
                members=members,
                position=position,
                node=f"node-{position}",
                host="js-{}.js",
                port=self.port,
            )
            file = ProgressRules(file=str(self.folder / f"progress-{position}"), paced=True)
            self.workers[position] = Progress(file, log=self._log, on_hung=lambda *_: None)
            ring = Ring(
                rules,
                jobset_uid=uid,
                log=self._log,
                motion=partial(self.motion, position),
                on_report=self._note(position),
                resolve=self._resolve,
                bind=self.address(position),
            )
            self.agents[position] = ring
            self.reports.setdefault(position, [])
            ring.see(1, 0)
            ring.start()

    def motion(self, position: int) -> Motion:
        """Return the progress of a pod's worker."""
        return motion_of(*self.workers[position].pace())

    def vanish(self, position: int) -> None:
        """Stop an agent without a goodbye."""
        self.agents[position]._closed = True

    def address(self, position: int) -> str:
        """Return the address of a pod."""
        return f"127.0.9.{position + 1}"

    def _resolve(self, host: str) -> tuple[object, ...]:
        position = int(host.removesuffix(".js").rpartition("-")[2])
        self.lookups.append(position)
        if not self.has_names:
            raise OSError("no such name")
        return (self.address(position), self.port)

    def _note(self, position: int) -> Callable[[], None]:
        return lambda: self.reports[position].append(self.agents[position].report)

    def _log(self, event: str, /, *, level: str = "info", **fields: object) -> None:
        self.logged.append((event, {"level": level, **fields}))

    def hears(self, position: int, other: int) -> bool:
        """Return whether an agent watches another one and has heard it."""
        watch = self.agents[position]._watch
        peer = watch._peers.get(other)
        return other in watch.targets and peer is not None and peer.heard_at is not None

    async def hear_each_other(self) -> None:
        """Wait until all agents have heard those that they watch."""
        await eventually(
            lambda: all(
                agent.heard_at is not None and self.hears(position, other)
                for position, agent in self.agents.items()
                for other in agent._watch.targets
                if other in self.agents
            ),
            seconds=10,
        )


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    """Four pods, whose agents are stopped at the end."""
    found = Group(tmp_path, 4)
    yield found
    for agent in found.agents.values():
        agent.close()


async def test_pod_that_vanishes_is_reported_by_its_neighbours_only(group: Group) -> None:
    """Each of them reports once."""
    group.start(0, 1, 2, 3)
    await group.hear_each_other()
    group.vanish(3)
    await eventually(lambda: bool(group.reports[0] and group.reports[2]), seconds=10)

    assert group.reports == {0: ["1 unknown w-0-3"], 1: [], 2: ["1 unknown w-0-3"], 3: []}


async def test_pod_that_ends_in_order_is_not_reported(group: Group) -> None:
    """Its neighbours then watch each other."""
    group.start(0, 1, 2, 3)
    await group.hear_each_other()
    group.agents[3].close()
    await eventually(lambda: group.hears(0, 2), seconds=10)
    group.vanish(2)
    await eventually(lambda: bool(group.reports[0] and group.reports[1]), seconds=10)

    assert group.reports[0] == ["1 unknown w-0-2"]
    assert group.reports[1] == ["1 unknown w-0-2"]


async def test_replacement_is_heard_at_its_first_beat_without_a_lookup(group: Group) -> None:
    """The datagram has its address; the report is withdrawn."""
    group.start(0, 1, 2, 3)
    await group.hear_each_other()
    group.vanish(3)
    await eventually(lambda: bool(group.reports[0] and group.reports[2]), seconds=10)
    await eventually(lambda: group.agents[3]._socket is None, seconds=10)
    group.start(3)
    await eventually(lambda: group.reports[0][-1] is group.reports[2][-1] is None, seconds=10)

    assert [len(group.reports[each]) for each in (0, 2)] == [2, 2]


async def test_next_epoch_withdraws_a_report_without_a_request(group: Group) -> None:
    """The patch that reports the pod's next epoch removes the annotation."""
    group.start(0, 1, 2, 3)
    await group.hear_each_other()
    group.vanish(3)
    await eventually(lambda: bool(group.reports[0] and group.reports[2]), seconds=10)
    for each in (0, 1, 2):
        group.agents[each].see(2, 1)
    await eventually(lambda: group.agents[0].report is None, seconds=10)

    assert group.reports[0] == ["1 unknown w-0-3"]


async def test_beats_of_another_jobset_are_ignored(group: Group) -> None:
    """They have another key."""
    group.start(0, 1)
    group.start(2, 3, uid="another")
    await eventually(lambda: group.hears(0, 1) and group.hears(1, 0), seconds=10)
    await eventually(lambda: group.hears(2, 3) and group.hears(3, 2), seconds=10)
    await eventually(lambda: group.lookups.count(2) > 1 < group.lookups.count(3), seconds=10)

    assert not group.hears(0, 3)
    assert not group.hears(1, 2)


async def test_beats_report_a_stalled_worker(group: Group) -> None:
    """A worker that made steps and makes none now is a second sign of a lost pod."""
    group.start(0, 1, 2, 3)
    files = [group.folder / f"progress-{each}" for each in range(4)]
    for worker in group.workers.values():
        worker.started()
    await group.hear_each_other()

    def step() -> bool:
        for file in files:
            file.write_text(str(time.monotonic_ns()))
        return all(group.motion(each) is Motion.MOVING for each in group.agents)

    await eventually(step, seconds=10)
    await eventually(lambda: group.motion(0) is Motion.STALLED, seconds=10)
    group.vanish(3)
    await eventually(lambda: bool(group.reports[0] and group.reports[2]), seconds=10)

    assert group.reports[0] == ["1 stalled w-0-3"]


async def test_ring_is_off_when_its_port_is_taken(group: Group) -> None:
    """The log says so, and the worker runs without it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((group.address(0), group.port))
        group.start(0)

    ((event, fields),) = group.logged
    assert event.startswith("no heartbeats: the port cannot be opened")
    assert fields["port"] == group.port
    assert group.agents[0].heard_at is None


async def test_flood_of_datagrams_does_not_stop_the_beats(group: Group) -> None:
    """Datagrams without the key are dropped, some hundred at most between two beats."""
    group.start(0, 1, 2, 3)
    await group.hear_each_other()
    peer, heard = group.agents[0]._watch._peers[1], set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flood:

        def beats() -> bool:
            for _ in range(500):
                flood.sendto(b"x" * 30, (group.address(1), group.port))
            heard.add(peer.heard_at)
            return len(heard) > 5

        await eventually(beats, seconds=10)


async def test_name_that_is_not_found_is_looked_up_again_with_pauses(group: Group) -> None:
    """A pod that does not exist yet causes few lookups."""
    failed: list[float] = []

    def fails(_host: str) -> tuple[object, ...]:
        failed.append(time.monotonic())
        raise OSError("unknown name")

    group._resolve = fails  # type: ignore[method-assign]
    group.start(0)
    await eventually(lambda: len(failed) >= 4, seconds=10)

    assert failed[2] - failed[0] > 2 * INTERVAL_S


async def test_names_are_looked_up_immediately_when_a_barrier_has_lifted(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods that start together have no names at first; a long pause would leave them unheard."""
    monkeypatch.setattr("jobsetpy.agent.supervisor.heartbeats.ring.LOOKUP_S", 600.0)
    group.has_names = False
    group.start(0, 1, 2, 3)
    await eventually(lambda: len(group.lookups) == 8, seconds=10)
    group.has_names = True
    for agent in group.agents.values():
        agent.see(2, 1)

    await group.hear_each_other()
