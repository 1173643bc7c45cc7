"""Rules of the ring of heartbeats: whom an agent watches, and what it reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.agent.protocol.settings import ConfigurationError
from jobsetpy.agent.supervisor.ring_rules import (
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
    """Settings of a pod in a ring of one Job, with beats half a second apart."""
    members = Members((Part("w", 1, size),))
    return RingRules(interval_s=0.5, members=members, position=position, node=node, host="js-{}.js")


def beat(position: int, node: str = "", motion: Motion = Motion.STALLED, **fields: int) -> Beat:
    """A beat of a pod, on a node of its own unless one is named."""
    digest = node_digest(node or f"n{position}")
    return Beat(position, fields.get("epoch", EPOCH), digest, motion, bool(fields.get("bye")))


class Agent:
    """Watch of the pod at position 0, with a clock that steps by its interval."""

    def __init__(self, size: int = 4, position: int = 0) -> None:
        self.watch = Watch(rules(position, size), 0.0)
        self.now = 0.0

    def hear(self, *beats: Beat, epoch: int = EPOCH) -> list[bool]:
        """Hear beats now; return which of them have to be answered."""
        return [self.watch.hear(one, ("a", one.position), self.now, epoch) for one in beats]

    def look(
        self, seconds: float = 0.5, epoch: int = EPOCH, motion: Motion = Motion.STALLED
    ) -> str | None:
        """Look again after a time; return the report."""
        self.now += seconds
        return self.watch.look(self.now, epoch, motion)

    def wait(self, seconds: float, *beats: Beat, epoch: int = EPOCH) -> str | None:
        """Look at each interval while some pods beat; return the last report."""
        report = None
        for _ in range(round(seconds / 0.5)):
            self.hear(*beats)
            report = self.look(epoch=epoch)
        return report


# ---- places --------------------------------------------------------------------------------------


def test_positions_follow_replicated_jobs_jobs_and_indexes() -> None:
    """Each pod has one position, and the name of a position is that of its pod."""
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
    """Position, interval, and host names by the Service of the JobSet, or another subdomain."""
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
def test_a_pod_that_was_added_later_has_no_place(own: dict[str, str]) -> None:
    """A JobSet that grows has pods outside of the ring that others know."""
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
    """What cannot be used ends the agent with the variable and its form."""
    with pytest.raises(ConfigurationError, match=problem):
        load({**ENVIRON, **own}, "a-js")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("auto", 0.5), ("0.1", 0.1), ("10", 10.0), ("1.25", 1.25), ("10.1", None), (".5", None)]
    + [(text, None) for text in ("", "1.", "1e0", "nan", "-1", "0", "٣", "0.1000000")],
)
def test_intervals_have_bounds(text: str, seconds: float | None) -> None:
    """A tenth of a second to ten seconds, in plain digits."""
    assert interval_of(text) == seconds


# ---- datagrams -----------------------------------------------------------------------------------


def test_a_beat_is_the_same_after_its_journey() -> None:
    """A datagram of 30 bytes, 58 with the headers of IP and UDP."""
    sent = beat(3, motion=Motion.MOVING, bye=1)
    answer = sent._replace(bye=False, answer=True)

    assert [decode(encode(each, KEY), KEY) for each in (sent, answer)] == [sent, answer]
    assert len(encode(sent, KEY)) == 30


@given(st.binary(max_size=64))
def test_bytes_without_the_key_are_no_beat(data: bytes) -> None:
    """Any bytes, and any beat under the key of another JobSet."""
    assert decode(data, KEY) is None
    assert decode(encode(beat(1), key_of("another")), KEY) is None


@given(st.integers(0, 29), st.integers(1, 255))
def test_a_changed_beat_is_no_beat(at: int, change: int) -> None:
    """One byte that differs is enough."""
    data = bytearray(encode(beat(1), KEY))
    data[at] ^= change

    assert decode(bytes(data), KEY) is None


# ---- progress ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("idle_s", "steps", "motion"),
    [
        (None, [0.1] * 9, Motion.UNKNOWN),
        (9.0, [0.1] * 2, Motion.UNKNOWN),
        (0.9, [0.1] * 3, Motion.MOVING),
        (1.0, [0.1] * 3, Motion.STALLED),
        (5.9, [2.0, 0.1, 9.0], Motion.MOVING),
        (6.0, [2.0, 0.1, 9.0], Motion.STALLED),
    ],
)
def test_a_worker_stalls_after_three_median_steps(
    idle_s: float | None, steps: list[float], motion: Motion
) -> None:
    """At least a second, and only once there were enough steps."""
    assert motion_of(idle_s, steps) == motion


# ---- whom an agent watches -----------------------------------------------------------------------


def test_an_agent_watches_its_neighbours_in_both_directions() -> None:
    """The ring is closed; of two pods each watches the other."""
    assert Agent(4).watch.targets == [1, 3]
    assert Agent(2).watch.targets == [1]
    assert Agent(1).watch.targets == []


def test_pods_of_the_own_node_are_passed_over() -> None:
    """They would vanish together; a pod that comes back on another node is watched again."""
    agent = Agent(6)
    agent.hear(beat(1, "n0"), beat(2, "n0"), beat(5, "n0"))
    passed = agent.watch.targets
    agent.hear(beat(1, "n1"))

    assert passed == [3, 4]
    assert agent.watch.targets == [1, 4]


def test_beats_of_pods_that_are_not_watched_are_answered() -> None:
    """Those that are watched get a beat in each interval anyway."""
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
def test_beats_of_nobody_in_the_ring_are_ignored(strange: Beat) -> None:
    """The own position, one outside of the ring, and one that is two epochs old."""
    agent = Agent(4)

    assert agent.hear(strange) == [False]
    assert agent.watch.heard_at is None


def test_only_other_nodes_show_that_the_network_works() -> None:
    """A beat from the own node says nothing about it."""
    agent = Agent(4)
    agent.hear(beat(1, "n0"))
    near = agent.watch.heard_at
    agent.hear(beat(3))

    assert near is None
    assert agent.watch.heard_at == agent.now


# ---- what it reports -----------------------------------------------------------------------------


def test_a_pod_is_reported_when_it_was_heard_and_is_silent_for_two_seconds() -> None:
    """Four beats have to be missing; once it is heard again, there is no report."""
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
def test_a_report_has_the_progress_of_all_known_workers(
    own: Motion, other: Motion, word: str
) -> None:
    """A spare has no worker itself, but hears of its neighbour's."""
    agent = Agent(4)
    agent.wait(1, beat(1), beat(3))
    for _ in range(5):
        agent.hear(beat(1, motion=other))
        report = agent.look(motion=own)

    assert report == f"7 {word} w-0-3"


def test_a_pod_that_was_never_heard_is_not_reported() -> None:
    """It may not exist yet, or a policy may forbid datagrams."""
    agent = Agent(4)

    assert agent.wait(20, beat(1)) is None


def test_a_pod_that_says_goodbye_is_not_reported_and_passed_over() -> None:
    """Its work is done, or its pod is deleted: the next one is watched in its place."""
    agent = Agent(6)
    agent.wait(1, beat(1), beat(5))
    agent.hear(beat(5, bye=1))

    assert agent.wait(5, beat(1)) is None
    assert agent.watch.targets == [1, 4]


def test_time_in_which_the_agent_did_not_run_is_no_silence() -> None:
    """Stopped with its machine for a minute, it has not heard anything itself."""
    agent = Agent(4)
    agent.wait(2, beat(1), beat(3))

    assert agent.look(60.0) is None
    assert agent.look(0.5) == "7 stalled w-0-1,w-0-3"


def test_a_reported_pod_is_reported_in_the_next_epoch_only_if_heard_again() -> None:
    """A network that fails for long costs one restart, not one after the other."""
    agent = Agent(4)
    agent.wait(1, beat(1), beat(3))
    agent.wait(3, beat(1))

    assert agent.wait(10, beat(1), epoch=8) is None
    agent.wait(1, beat(1), beat(3, epoch=8), epoch=8)
    assert agent.wait(3, beat(1), epoch=8) == "8 stalled w-0-3"


def test_a_pod_that_falls_silent_again_is_reported_later_each_time() -> None:
    """A link that loses much must not cost two writes each few seconds."""
    agent = Agent(4)
    agent.wait(1, beat(1), beat(3))
    agent.wait(2.5, beat(1))
    agent.wait(0.5, beat(1), beat(3))

    assert agent.wait(3.0, beat(1)) is None
    assert agent.wait(0.5, beat(1)) == "7 stalled w-0-3"


def test_the_first_pods_report_that_nothing_ever_comes() -> None:
    """All log it, some report it; the first beat ends it."""
    first, fifth = Agent(8), Agent(8, position=4)
    reports = first.wait(BLOCKED_S + 1), fifth.wait(BLOCKED_S + 1)

    assert reports == ("7 blocked", None)
    assert fifth.watch.blocked
    assert first.wait(0.5, beat(1)) is None
    assert not first.watch.blocked


def test_no_report_is_made_before_workers_have_run() -> None:
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
    """For any beats and any pauses, of the agent's own as well."""
    agent = Agent(4)
    heard: dict[int, float] = {}
    clock = 0.0  # as far as the agent has run
    for sender, seconds in events:
        if sender:
            agent.hear(beat(sender))
            heard[sender] = clock
        report = agent.look(seconds)
        clock += min(seconds, 1.0)
        for name in report.split(" ")[2].split(",") if report and "w-" in report else ():
            position = int(name.rpartition("-")[2])
            assert clock - heard[position] >= 2.0 - 1e-6
