"""Rules of the ring of heartbeats: whom an agent watches, and what it reports about them.

The agents of a JobSet's pods send each other datagrams, so that a node that vanishes without a word
is noticed in seconds. The ring has the order of ranks: ReplicatedJobs, Jobs, completion indexes.
Each agent watches the next one on another node in both directions; pods of its own node would
vanish together with it. It sends them a beat in each interval, and answers beats of others. An
answer is never answered: two pods of one node watch neither each other, and would not stop.

Safety:

* The ring only reports: it starts, stops and delays no worker. The manager ends an epoch only if
  agents on two nodes report the same pod, and workers make no progress.
* A pod is reported only if it was heard before, and again only if it was heard in between: neither
  a network that never lets datagrams through, nor one that fails, causes restart after restart.
* Only time in which this agent itself has run counts as silence of others.

A beat is authentic if its sender knows the UID of the JobSet: its pods, and all who may read it. It
can be replayed within two epochs by those who see it. A forged one can do no more than hide a dead
pod, or have a pod reported that needs the second sign.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2s
from hmac import compare_digest
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from jobsetpy.agent.protocol.settings import (
    ConfigurationError,
    is_decimal,
    is_number,
    number_of,
)
from jobsetpy.agent.supervisor.worker.settings import MAX_RANKS
from jobsetpy.api import agent_keys

AUTO: Final = "auto"
AUTO_S: Final = 0.5
MIN_S, MAX_S = 0.1, 10.0
"""Default and bounds of the interval between beats, in seconds."""

MISSED: Final = 4
"""Number of intervals without a beat after which a pod is silent."""

MAX_SKIPPED: Final = 64
"""Maximum number of pods of the own node that are passed over in each direction."""

BLOCKED_S: Final = 30.0
"""Time in seconds without any beat, while workers run, after which datagrams count as blocked."""

BLOCKED_REPORTERS: Final = 4
"""Number of pods, the first ones of the ring, that report it to the manager; all of them log it."""

MAX_DOUBLINGS: Final = 4
"""A pod that falls silent again in the same epoch is reported after twice the time, up to this."""

MIN_STALL_S: Final = 1.0
STALL_STEPS: Final = 3
MIN_STEPS: Final = 3
"""A worker is stalled without progress for :data:`STALL_STEPS` median steps, and at least
:data:`MIN_STALL_S` seconds, once that many steps were observed."""

VERSION: Final = 1
_BODY: Final = struct.Struct("!BBIII")
_DIGEST: Final = 16
_BYE: Final = 0x80
_ANSWER: Final = 0x40


class Motion(enum.IntEnum):
    """Progress of a pod's worker."""

    UNKNOWN = 0
    """No worker runs, or it has not reported enough steps."""
    MOVING = 1
    STALLED = 2


def motion_of(idle_s: float, steps: Collection[float], *, runs: bool = True) -> Motion:
    """Return the progress of a worker.

    Args:
        idle_s: seconds since its last step, or since its start.
        steps: durations of the latest steps, in seconds.
        runs: False if no worker runs.
    """
    if not runs or len(steps) < MIN_STEPS:
        return Motion.UNKNOWN
    median = sorted(steps)[len(steps) // 2]
    limit = max(MIN_STALL_S, STALL_STEPS * median)
    return Motion.STALLED if idle_s >= limit else Motion.MOVING


class Part(NamedTuple):
    """ReplicatedJob of the ring: its name, number of Jobs, and of pods of each Job."""

    name: str
    jobs: int
    pods: int


class Members(msgspec.Struct, frozen=True):
    """All pods of the ring, in its order; positions begin with 0."""

    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Number of pods."""
        return sum(part.jobs * part.pods for part in self.parts)

    def position(self, replicated_job: str, job: int, pod: int) -> int | None:
        """Return the position of a pod; ``None`` if it is not in the ring."""
        first = 0
        for part in self.parts:
            if part.name == replicated_job:
                inside = 0 <= job < part.jobs and 0 <= pod < part.pods
                return first + job * part.pods + pod if inside else None
            first += part.jobs * part.pods
        return None

    def name(self, position: int) -> str:
        """Return ReplicatedJob, Job and completion index of a pod, such as ``w-0-3``."""
        for part in self.parts:
            if position < part.jobs * part.pods:
                job, pod = divmod(position, part.pods)
                return f"{part.name}-{job}-{pod}"
            position -= part.jobs * part.pods
        raise IndexError(position)


class RingRules(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an agent's part of the ring.

    Args:
        interval_s: seconds between beats.
        members: pods of the ring.
        position: position of the own pod.
        node: name of its node.
        host: host name of a pod without the part that differs between pods: ``{}`` stands for it.
        port: UDP port of all agents.
    """

    interval_s: float
    members: Members
    position: int
    node: str
    host: str
    port: int = agent_keys.HEARTBEAT_PORT

    @property
    def silent_s(self) -> float:
        """Seconds without a beat after which a pod is silent."""
        return MISSED * self.interval_s

    def host_of(self, position: int) -> str:
        """Return the host name of a pod."""
        return self.host.format(self.members.name(position))


def load(environ: Mapping[str, str], jobset: str) -> RingRules | None:
    """Read the settings of the ring; ``None`` if the pod has no place in it.

    Args:
        environ: ``HEARTBEAT_SECONDS`` (or ``auto``), ``HEARTBEAT_GROUP`` with the ReplicatedJobs as
            ``NAME:JOBS:PODS``, separated by commas, ``HEARTBEAT_SUBDOMAIN``, ``HEARTBEAT_PORT``,
            ``NODE_NAME``, ``WORKER_JOB`` and ``WORKER_POD_INDEX``.
        jobset: name of the JobSet.

    Raises:
        ConfigurationError: a value cannot be used; the message names the variable.
    """
    interval = interval_of(environ.get("HEARTBEAT_SECONDS", ""))
    if interval is None:
        text = environ.get("HEARTBEAT_SECONDS", "")
        raise ConfigurationError(
            f'HEARTBEAT_SECONDS must be a number from {MIN_S:g} to {MAX_S:g}, or "{AUTO}": {text!r}'
        )
    parts = []
    for word in environ.get("HEARTBEAT_GROUP", "").split(","):
        name, *counts = word.split(":")
        if not name or len(counts) != 2 or not all(is_number(n, 0, MAX_RANKS) for n in counts):
            raise ConfigurationError(f"HEARTBEAT_GROUP must have NAME:JOBS:PODS, not {word!r}")
        parts.append(Part(name, int(counts[0]), int(counts[1])))
    members = Members(tuple(parts))
    job, _, number = environ.get("WORKER_JOB", "").removeprefix(f"{jobset}-").rpartition("-")
    pod = number_of(environ, "WORKER_POD_INDEX", 0, 0, MAX_RANKS)
    position = members.position(job, int(number), pod) if is_number(number, 0, MAX_RANKS) else None
    if position is None:
        return None
    return RingRules(
        interval_s=interval,
        members=members,
        position=position,
        node=environ.get("NODE_NAME", ""),
        host=f"{jobset}-{{}}.{environ.get('HEARTBEAT_SUBDOMAIN') or jobset}",
        port=number_of(environ, "HEARTBEAT_PORT", agent_keys.HEARTBEAT_PORT, 1, 65535),
    )


def interval_of(text: str) -> float | None:
    """Return the interval between beats in seconds; ``None`` for an invalid text."""
    if text == AUTO:
        return AUTO_S
    valid = is_decimal(text) and len(text) <= 6 and MIN_S <= float(text) <= MAX_S
    return float(text) if valid else None


class Beat(NamedTuple):
    """Content of a datagram.

    Args:
        position: position of the sender.
        epoch: synced epoch as the sender knows it.
        node: digest of the name of its node.
        motion: progress of its worker.
        bye: True if the sender ends in an orderly way, and will send no other beat.
        answer: True if it answers a beat.
    """

    position: int
    epoch: int
    node: int
    motion: Motion = Motion.UNKNOWN
    bye: bool = False
    answer: bool = False


def node_digest(name: str) -> int:
    """Return the digest of a node's name; unequal digests are unequal nodes."""
    return crc32(name.encode())


def key_of(jobset_uid: str) -> bytes:
    """Return the key of the beats of a JobSet's pods."""
    return blake2s(jobset_uid.encode(), person=b"jobset").digest()


def encode(beat: Beat, key: bytes) -> bytes:
    """Return a datagram, 30 bytes."""
    flags = beat.motion | (_BYE if beat.bye else 0) | (_ANSWER if beat.answer else 0)
    body = _BODY.pack(VERSION, flags, beat.position, beat.epoch, beat.node)
    return body + blake2s(body, key=key, digest_size=_DIGEST).digest()


def decode(data: bytes, key: bytes) -> Beat | None:
    """Return a datagram as a beat; ``None`` if it is not authentic."""
    body, digest = data[: _BODY.size], data[_BODY.size :]
    if len(data) != _BODY.size + _DIGEST:
        return None
    if not compare_digest(digest, blake2s(body, key=key, digest_size=_DIGEST).digest()):
        return None
    version, flags, position, epoch, node = _BODY.unpack(body)
    motion = flags & ~(_BYE | _ANSWER)
    if version != VERSION or motion > Motion.STALLED:
        return None
    return Beat(position, epoch, node, Motion(motion), bool(flags & _BYE), bool(flags & _ANSWER))


class _Peer(msgspec.Struct):
    """Agent of another pod.

    Args:
        heard_at: time of its last beat; ``None`` if it was not heard since it was last reported.
        node: digest of its node; ``None`` if unknown.
        reported: True while it is reported as silent.
        silences: number of times that it was heard again in this epoch.
    """

    address: tuple[object, ...] | None = None
    gone: bool = False
    heard_at: float | None = None
    motion: Motion = Motion.UNKNOWN
    node: int | None = None
    reported: bool = False
    silences: int = 0


class Watch:
    """State of one agent's part of the ring.

    All times are seconds on the monotonic clock. Nothing here depends on the size of the ring.

    Args:
        rules: settings.
        now: current time.
    """

    def __init__(self, rules: RingRules, now: float) -> None:
        self._rules = rules
        self._node = node_digest(rules.node)
        self._size = rules.members.size
        self._peers: dict[int, _Peer] = {}
        self._at = now
        self._epoch = 0
        self._deaf_s = 0.0
        self.blocked = False
        self.heard_at: float | None = None
        self.report: str | None = None

    def beat(self, epoch: int, motion: Motion, *, bye: bool = False, answer: bool = False) -> Beat:
        """Return the own beat."""
        return Beat(self._rules.position, epoch, self._node, motion, bye, answer)

    @property
    def targets(self) -> list[int]:
        """Positions of the watched pods, at most two."""
        found = (self._target(1), self._target(-1))
        return list(dict.fromkeys(each for each in found if each is not None))

    def _target(self, direction: int) -> int | None:
        """Return the next pod in a direction that is not known to be on the same node, or gone."""
        for distance in range(1, min(MAX_SKIPPED + 1, self._size)):
            position = (self._rules.position + direction * distance) % self._size
            peer = self._peers.get(position)
            if peer is None or not (peer.gone or peer.node == self._node):
                return position
        return None

    @property
    def addresses(self) -> list[tuple[object, ...]]:
        """Known addresses of the watched pods."""
        found = (self._peers.get(position) for position in self.targets)
        return [peer.address for peer in found if peer is not None and peer.address is not None]

    def unresolved(self) -> list[int]:
        """Return the watched pods that were not heard for too long, or never: look them up."""
        late = self._at - self._rules.silent_s
        found = ((position, self._peers.get(position)) for position in self.targets)
        return [
            position
            for position, peer in found
            if peer is None or peer.heard_at is None or peer.heard_at <= late
        ]

    def resolved(self, position: int, address: tuple[object, ...]) -> None:
        """Set the address of a pod."""
        self._peers.setdefault(position, _Peer()).address = address

    def hear(self, beat: Beat, address: tuple[object, ...], now: float, epoch: int) -> bool:
        """Process an authentic beat; return True if it has to be answered.

        Args:
            beat: the beat.
            address: address that it came from.
            now: current time.
            epoch: synced epoch as this agent knows it.
        """
        own, size = self._rules.position, self._size
        distance = min((beat.position - own) % size, (own - beat.position) % size) if size else 0
        if not 0 <= beat.position < size or not 1 <= distance <= MAX_SKIPPED:
            return False
        if beat.epoch + 1 < epoch:
            return False
        peer = self._peers.setdefault(beat.position, _Peer())
        if peer.reported:
            peer.reported = False
            peer.silences += 1
        peer.address, peer.node, peer.gone = address, beat.node, beat.bye
        peer.motion = beat.motion
        peer.heard_at = None if beat.bye else now
        if beat.node != self._node:
            self.heard_at = now
            self._deaf_s, self.blocked = 0.0, False
        # Those that are watched get a beat in each interval anyway.
        return not (beat.bye or beat.answer) and beat.position not in self.targets

    def look(self, now: float, epoch: int, motion: Motion, *, runs: bool = True) -> str | None:
        """Return the report, once in each interval; ``None`` for nothing to report.

        Args:
            now: current time; all datagrams that have arrived were processed.
            epoch: synced epoch; 0 before the first one, when pods come and go.
            motion: progress of the own worker.
            runs: True while workers run, so that all pods exist.
        """
        passed, self._at = now - self._at, now
        frozen = max(0.0, passed - 2 * self._rules.interval_s)
        if frozen:
            for peer in self._peers.values():
                if peer.heard_at is not None:
                    peer.heard_at += frozen
        if not epoch:
            return self.report
        if epoch != self._epoch:
            self._begin(epoch)
        watched = self.targets
        if watched and runs and self.heard_at is None:
            self._deaf_s += passed - frozen
            self.blocked = self._deaf_s >= BLOCKED_S
        silent, motions = self._silent(watched, now)
        if silent:
            motions.add(motion)
            known = (each for each in (Motion.MOVING, Motion.STALLED) if each in motions)
            word = next(known, Motion.UNKNOWN).name.lower()
            names = ",".join(self._rules.members.name(each) for each in silent)
            self.report = f"{epoch} {word} {names}"
        elif self.blocked and self._rules.position < BLOCKED_REPORTERS:
            self.report = f"{epoch} blocked"
        else:
            self.report = None
        return self.report

    def _begin(self, epoch: int) -> None:
        """Forget what was reported in the last epoch."""
        self._epoch = epoch
        for peer in self._peers.values():
            if peer.reported:
                peer.heard_at, peer.reported = None, False
            peer.silences = 0

    def _silent(self, watched: Iterable[int], now: float) -> tuple[list[int], set[Motion]]:
        """Return the pods that are silent, and the progress of the others that were heard."""
        silent: list[int] = []
        motions: set[Motion] = set()
        for position in watched:
            peer = self._peers.get(position)
            if peer is not None and peer.heard_at is not None:
                limit = self._rules.silent_s * 2 ** min(peer.silences, MAX_DOUBLINGS)
                peer.reported = now - peer.heard_at >= limit
                if peer.reported:
                    silent.append(position)
                else:
                    motions.add(peer.motion)
        return silent, motions
