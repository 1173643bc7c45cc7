"""Rules of the ring of heartbeats: the pods that an agent watches, and its reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.agent.protocol.settings import ConfigurationError
from jobsetpy.agent.supervisor.heartbeats.rules import (
    BLOCKED_S,
    Beat,
    Members,
    Motion,
    Part,
    RingRules,
    Watch,
    decode,
    encode,
    interval_of,
    key_of,
    load,
    motion_of,
    node_digest,
)

KEY = key_of("a-uid")
MEMBERS = Members((Part("w", 2, 2), Part("x", 1, 1)))
EPOCH = 7


def rules(position: int, size: int = 4, node: str = "n0") -> RingRules:
    """Return the settings of a pod in a ring of one Job, with a beat each half second."""
    members = Members((Part("w", 1, size),))
    return RingRules(interval_s=0.5, members=members, position=position, node=node, host="js-{}.js")


def beat(position: int, node: str = "", motion: Motion = Motion.STALLED, **fields: int) -> Beat:
    """Return a beat of a pod on a node of its own, or on a given one."""
    digest = node_digest(node or f"n{position}")
    return Beat(position, fields.get("epoch", EPOCH), digest, motion, bool(fields.get("bye")))


class Agent:
    """Watch of the pod at position 0, with a clock that steps by its interval."""

    def __init__(self, size: int = 4, position: int = 0) -> None:
        self.watch = Watch(rules(position, size), 0.0)
        self.now = 0.0

    def hear(self, *beats: Beat, epoch: int = EPOCH) -> list[bool]:
        """Receive beats now; return which of them have to be answered."""
        return [self.watch.hear(one, ("a", one.position), self.now, epoch) for one in beats]

    def look(
        self, seconds: float = 0.5, epoch: int = EPOCH, motion: Motion = Motion.STALLED
    ) -> str | None:
        """Check after some seconds; return the report."""
        self.now += seconds
        return self.watch.look(self.now, epoch, motion)

    def wait(self, seconds: float, *beats: Beat, epoch: int = EPOCH) -> str | None:
        """Check at each interval while some pods beat; return the last report."""
        report = None
        for _ in range(round(seconds / 0.5)):
            self.hear(*beats)
            report = self.look(epoch=epoch)
        return report


# ---- places --------------------------------------------------------------------------------------


def test_positions_follow_replicated_jobs_jobs_and_indexes() -> None:
    """Each pod has one position, and a position has the name of its pod."""
    names = [MEMBERS.name(position) for position in range(MEMBERS.size)]

    assert names == ["w-0-0", "w-0-1", "w-1-0", "w-1-1", "x-0-0"]
    assert [MEMBERS.position("w", 1, 1), MEMBERS.position("x", 0, 0)] == [3, 4]
    assert [
        MEMBERS.position("w", 2, 0),
        MEMBERS.position("x", 0, 1),
        MEMBERS.position("y", 0, 0),
    ] == [None] * 3


ENVIRON = {
    "HEARTBEAT_SECONDS": "auto",
    "HEARTBEAT_GROUP": "w:2:2,x:1:1",
    "NODE_NAME": "n0",
    "WORKER_JOB": "a-js-w-1",
    "WORKER_POD_INDEX": "0",
}


def test_settings_are_read_from_the_environment() -> None:
    """Host names have the JobSet's name as their subdomain, or another one."""
    found = load(ENVIRON, "a-js")
    other = load({**ENVIRON, "HEARTBEAT_SUBDOMAIN": "net", "HEARTBEAT_SECONDS": "2"}, "a-js")

    assert found is not None
    assert (found.position, found.interval_s, found.silent_s) == (2, 0.5, 2.0)
    assert found.host_of(4) == "a-js-x-0-0.a-js"
    assert other is not None
    assert (other.interval_s, other.host_of(0)) == (2.0, "a-js-w-0-0.net")


@pytest.mark.parametrize(
    "own", [{"WORKER_JOB": "a-js-w-2"}, {"WORKER_POD_INDEX": "2"}, {"WORKER_JOB": ""}]
)
def test_pod_that_was_added_later_has_no_position(own: dict[str, str]) -> None:
    """Pods of a JobSet that has grown are outside of the ring that the others know."""
    assert load({**ENVIRON, **own}, "a-js") is None


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({"HEARTBEAT_SECONDS": "0.05"}, "HEARTBEAT_SECONDS must be a number from 0.1 to 10"),
        ({"HEARTBEAT_SECONDS": "soon"}, "HEARTBEAT_SECONDS must be a number from 0.1 to 10"),
        ({"HEARTBEAT_GROUP": "w:2"}, "HEARTBEAT_GROUP must have NAME:JOBS:PODS, not 'w:2'"),
        ({"HEARTBEAT_GROUP": ""}, "HEARTBEAT_GROUP must have NAME:JOBS:PODS, not ''"),
    ],
)
def test_invalid_settings_name_their_variable(own: dict[str, str], problem: str) -> None:
    """The agent ends with the variable and its form."""
    with pytest.raises(ConfigurationError, match=problem):
        load({**ENVIRON, **own}, "a-js")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("auto", 0.5), ("0.1", 0.1), ("10", 10.0), ("1.25", 1.25), ("10.1", None), (".5", None)]
    + [(text, None) for text in ("", "1.", "1e0", "nan", "-1", "0", "٣", "0.1000000")],
)
def test_intervals_are_between_a_tenth_of_a_second_and_ten_seconds(
    text: str, seconds: float | None
) -> None:
    """They are written in plain digits."""
    assert interval_of(text) == seconds


# ---- datagrams -----------------------------------------------------------------------------------


@given(st.integers(0, 29), st.integers(1, 255))
def test_changed_datagram_is_not_a_beat(at: int, change: int) -> None:
    """One other byte is enough."""
    data = bytearray(encode(beat(1), KEY))
    data[at] ^= change

    assert decode(bytes(data), KEY) is None


# ---- progress ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("idle_s", "steps", "motion"),
    [
        (9.0, [0.1] * 2, Motion.UNKNOWN),
        (0.9, [0.1] * 3, Motion.MOVING),
        (1.0, [0.1] * 3, Motion.STALLED),
        (5.9, [2.0, 0.1, 9.0], Motion.MOVING),
        (6.0, [2.0, 0.1, 9.0], Motion.STALLED),
    ],
)
def test_worker_stalls_after_three_median_steps(
    idle_s: float, steps: list[float], motion: Motion
) -> None:
    """After a second at least, and only once there were enough steps."""
    assert motion_of(idle_s, steps) == motion
    assert motion_of(idle_s, steps, runs=False) == Motion.UNKNOWN


# ---- the pods that an agent watches --------------------------------------------------------------


def test_agent_watches_its_neighbours_in_both_directions() -> None:
    """The ring is closed; two pods watch each other."""
    assert Agent(4).watch.targets == [1, 3]
    assert Agent(2).watch.targets == [1]
    assert Agent(1).watch.targets == []


def test_pods_of_the_same_node_are_skipped() -> None:
    """They would vanish together; a pod that returns on another node is watched again."""
    agent = Agent(6)
    agent.hear(beat(1, "n0"), beat(2, "n0"), beat(5, "n0"))
    passed = agent.watch.targets
    agent.hear(beat(1, "n1"))

    assert passed == [3, 4]
    assert agent.watch.targets == [1, 4]


def test_beats_of_pods_that_are_not_watched_are_answered() -> None:
    """Watched pods get a beat in each interval anyway."""
    agent = Agent(6)

    assert agent.hear(beat(1), beat(2), beat(5), beat(3)) == [False, True, False, True]


@pytest.mark.parametrize("nodes", ["aaaa", "aabb", "aaab", "abab", "abcd"])
def test_exchange_ends_when_beats_have_been_answered(nodes: str) -> None:
    """Datagrams of one interval end, also between pods of a node, which do not watch each other."""
    watches = [Watch(rules(each, len(nodes), node), 0.0) for each, node in enumerate(nodes)]
    others = [(a, b) for a in range(len(nodes)) for b in range(len(nodes)) if a != b]
    for a, b in others:
        watches[a].resolved(b, (b,))
    sent = []
    for interval in range(5):
        waiting = [
            (a, b, watches[a].beat(EPOCH, Motion.MOVING))
            for a, b in others
            if (b,) in watches[a].addresses
        ]
        beats = len(waiting)
        while waiting and len(waiting) < 100:
            a, b, one = waiting.pop(0)
            if watches[b].hear(one, (a,), 0.5 * interval, EPOCH):
                waiting.append((b, a, watches[b].beat(EPOCH, Motion.MOVING, answer=True)))
                beats += 1
            assert beats <= 4 * len(nodes)
        sent.append(beats)

    assert sent[-1] <= 2 * len(nodes)


@pytest.mark.parametrize(
    "strange", [beat(0), beat(4), beat(400), beat(1, epoch=EPOCH - 2), beat(2, epoch=0)]
)
def test_beats_from_outside_of_the_ring_are_ignored(strange: Beat) -> None:
    """The agent's own position, one outside of the ring, and epochs that are over."""
    agent = Agent(4)

    assert agent.hear(strange) == [False]
    assert agent.watch.heard_at is None


def test_only_other_nodes_show_that_the_network_works() -> None:
    """A beat from the same node does not."""
    agent = Agent(4)
    agent.hear(beat(1, "n0"))
    near = agent.watch.heard_at
    agent.hear(beat(3))

    assert near is None
    assert agent.watch.heard_at == agent.now


# ---- what it reports -----------------------------------------------------------------------------


def test_pod_is_reported_after_two_silent_seconds_once_it_was_heard() -> None:
    """Four beats have to be missing; the report ends with the next beat."""
    agent = Agent(4)
    agent.wait(3, beat(1), beat(3))

    assert agent.wait(1.0, beat(1)) is None
    assert agent.wait(0.5, beat(1)) == "7 stalled w-0-3"
    assert agent.wait(0.5, beat(1), beat(3)) is None


def test_both_neighbours_are_reported_together() -> None:
    """One report has both names."""
    agent = Agent(4)
    agent.wait(1, beat(1), beat(3))

    assert agent.wait(3) == "7 stalled w-0-1,w-0-3"


@pytest.mark.parametrize(
    ("own", "other", "word"),
    [
        (Motion.STALLED, Motion.STALLED, "stalled"),
        (Motion.STALLED, Motion.MOVING, "moving"),
        (Motion.MOVING, Motion.STALLED, "moving"),
        (Motion.UNKNOWN, Motion.STALLED, "stalled"),
        (Motion.UNKNOWN, Motion.UNKNOWN, "unknown"),
    ],
)
def test_report_has_the_progress_of_all_known_workers(
    own: Motion, other: Motion, word: str
) -> None:
    """A spare has no worker itself, but its neighbour reports one."""
    agent = Agent(4)
    agent.wait(1, beat(1), beat(3))
    for _ in range(5):
        agent.hear(beat(1, motion=other))
        report = agent.look(motion=own)

    assert report == f"7 {word} w-0-3"


def test_pod_that_was_never_heard_is_not_reported() -> None:
    """It may not exist yet, or a policy may block datagrams."""
    agent = Agent(4)

    assert agent.wait(20, beat(1)) is None


def test_pod_that_says_goodbye_is_skipped_and_not_reported() -> None:
    """Its work is done, or it is being deleted: the next one is watched in its place."""
    agent = Agent(6)
    agent.wait(1, beat(1), beat(5))
    agent.hear(beat(5, bye=1))

    assert agent.wait(5, beat(1)) is None
    assert agent.watch.targets == [1, 4]


def test_time_in_which_the_agent_did_not_run_is_not_silence() -> None:
    """Paused with its machine for a minute, it could not hear anything."""
    agent = Agent(4)
    agent.wait(2, beat(1), beat(3))

    assert agent.look(60.0) is None
    assert agent.look(0.5) == "7 stalled w-0-1,w-0-3"


def test_reported_pod_is_reported_in_the_next_epoch_only_if_heard_again() -> None:
    """A network that fails for long costs one restart, not several."""
    agent = Agent(4)
    agent.wait(1, beat(1), beat(3))
    agent.wait(3, beat(1))

    assert agent.wait(10, beat(1), epoch=8) is None
    agent.wait(1, beat(1), beat(3, epoch=8), epoch=8)
    assert agent.wait(3, beat(1), epoch=8) == "8 stalled w-0-3"


def test_pod_that_is_silent_repeatedly_is_reported_later_each_time() -> None:
    """A link that loses many datagrams must not cost two writes every few seconds."""
    agent = Agent(4)
    agent.wait(1, beat(1), beat(3))
    agent.wait(2.5, beat(1))
    agent.wait(0.5, beat(1), beat(3))

    assert agent.wait(3.0, beat(1)) is None
    assert agent.wait(0.5, beat(1)) == "7 stalled w-0-3"


def test_first_pods_report_that_no_beats_arrive() -> None:
    """All log it, some report it; the first beat ends the report."""
    first, fifth = Agent(8), Agent(8, position=4)
    reports = first.wait(BLOCKED_S + 1), fifth.wait(BLOCKED_S + 1)

    assert reports == ("7 blocked", None)
    assert fifth.watch.blocked
    assert first.wait(0.5, beat(1)) is None
    assert not first.watch.blocked


def test_nothing_is_reported_before_workers_have_run() -> None:
    """Before the first lift pods come and go."""
    agent = Agent(4)
    agent.wait(1, beat(1, epoch=0), beat(3, epoch=0), epoch=0)

    assert agent.wait(60, epoch=0) is None


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 3]), st.sampled_from([0.1, 0.5, 1.0, 30.0])),
        max_size=60,
    )
)
def test_only_pods_that_are_silent_for_two_seconds_are_ever_reported(
    events: list[tuple[int, float]],
) -> None:
    """This holds for any beats and any pauses, the agent's own included."""
    agent = Agent(4)
    heard: dict[int, float] = {}
    clock = 0.0  # time in which the agent ran
    for sender, seconds in events:
        if sender:
            agent.hear(beat(sender))
            heard[sender] = clock
        report = agent.look(seconds)
        clock += min(seconds, 1.0)
        for name in report.split(" ")[2].split(",") if report and "w-" in report else ():
            position = int(name.rpartition("-")[2])
            assert clock - heard[position] >= 2.0 - 1e-6
