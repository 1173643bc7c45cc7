"""The watch machine with a model API server that fails at random and may lose its newest history."""

from __future__ import annotations

import random

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jobsetpy.client import WatchFrame
from jobsetpy.errors import (
    ApiTimeoutError,
    ConnectFailedError,
    DecodeError,
    ExpiredError,
    InvalidError,
    RetryableApiError,
    StreamBrokenError,
)
from jobsetpy.informers import WatchOptions
from jobsetpy.informers._events import (
    Applied,
    Bookmark,
    Deleted,
    ListCompleted,
    Listed,
    ListStarted,
)
from jobsetpy.informers._machine import (
    RESUME_S,
    OpenWatch,
    ReadFrames,
    RequestPage,
    Wait,
    WatchMachine,
    is_older,
)
from support.informers_kit import Meta, Thing


class Server:
    """A collection with its whole history; version n is history[n - 1]."""

    def __init__(self):
        self.history: list[tuple[str, Thing]] = []
        self.objects: dict[str, Thing] = {}
        self.compacted = 0
        self.lives = 0
        self.restores = 0

    def restore(self, version):
        """Go back to a backup: other writes will have the versions of those that are lost."""
        self.objects = self.as_of(version)
        del self.history[version:]
        self.compacted = 0
        self.restores += 1

    @property
    def version(self):
        return len(self.history)

    def write(self, name):
        old = self.objects.get(name)
        if old is None:
            self.lives += 1
        uid = str(self.lives) if old is None else old.metadata.uid
        new = Thing(Meta(name, "ns", uid, str(self.version + 1)), self.restores)
        self.history.append(("ADDED" if old is None else "MODIFIED", new))
        self.objects[name] = new

    def delete(self, name):
        old = self.objects.pop(name)
        last = Thing(Meta(name, "ns", old.metadata.uid, str(self.version + 1)), self.restores)
        self.history.append(("DELETED", last))

    def as_of(self, version):
        objects = {}
        for type_, thing in self.history[:version]:
            if type_ == "DELETED":
                del objects[thing.metadata.name]
            else:
                objects[thing.metadata.name] = thing
        return objects


class View:
    """A consumer that follows the rules of ``_events``, and checks what it receives."""

    def __init__(self, server):
        self.server = server
        self.objects: dict[str, Thing] = {}
        self.staged: dict[str, Thing] | None = None
        self.version: int | None = None
        self.rewound = self.went_back = False
        self.restored = False  # the server is, and the view does not know yet

    def take(self, events):
        for event in events:
            match event:
                case ListStarted(rewound):
                    self.staged = {}
                    self.rewound = rewound
                case Listed(thing):
                    self.staged[thing.metadata.name] = thing
                case ListCompleted(version):
                    assert self.staged is not None
                    # Consumers keep what they have in the same version, unless it is rewound.
                    older = self.version is not None and int(version) < self.version
                    assert older <= self.rewound
                    self.went_back = self.went_back or older
                    self.objects, self.staged = self.staged, None
                    self.version = int(version)
                    self.restored = False
                case Applied(thing):
                    self.change("put", thing)
                case Deleted(thing, known):
                    assert known
                    self.change("DELETED", thing)
                case Bookmark(version):
                    assert self.version <= int(version)
                    self.version = int(version)

    def change(self, what, thing):
        name = thing.metadata.name
        if self.staged is not None:
            if what == "DELETED":
                self.staged.pop(name, None)
            else:
                self.staged[name] = thing
            return
        version = int(thing.metadata.resource_version)
        # Nothing is lost: all versions in between were delivered, or this event is repeated.
        assert version in (self.version, self.version + 1), (version, self.version)
        type_, expected = self.server.history[version - 1]
        assert expected == thing
        assert (type_ == "DELETED") == (what == "DELETED")
        self.version = version
        if what == "DELETED":
            self.objects.pop(name, None)
        else:
            self.objects[name] = thing


FAULTS = st.sampled_from(
    [
        StreamBrokenError("cut"),
        ConnectFailedError("no"),
        ApiTimeoutError("late"),
        RetryableApiError(503),
        RetryableApiError(429),
        DecodeError("x", "", "no JSON"),
    ]
)
NAMES = st.sampled_from("abcd")


def frame(type_, obj):
    return WatchFrame(type_, msgspec.Raw(msgspec.json.encode(obj)))


def bookmark(version, *, end=False):
    meta = {"resourceVersion": str(version)}
    if end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return frame("BOOKMARK", {"metadata": meta})


class FaultyWatch(RuleBasedStateMachine):
    """Writes, faults and steps of the driver in any order."""

    streaming = False

    def __init__(self):
        super().__init__()
        self.server = Server()
        self.machine = WatchMachine(
            msgspec.json.Decoder(Thing).decode,
            options=WatchOptions(
                page_limit=2, streaming=self.streaming, rand=random.Random(0).random
            ),
        )
        self.view = View(self.server)
        self.now = 0.0
        self.sent = 0  # the open stream has sent everything up to this version
        self.initial: list[WatchFrame] | None = (
            None  # frames of a streaming list that are to be sent
        )
        self.snapshot: tuple[int, list[Thing]] = (0, [])
        self.highest = 0

    # Changes of the objects.

    @rule(data=st.data())
    def restore(self, data):
        """The API server stops, and starts with an older history, which may pass the last version."""
        self.server.restore(data.draw(st.integers(0, self.server.version)))
        self.view.restored |= self.server.version < (self.view.version or 0)
        if isinstance(self.machine.command, Wait):
            self.machine.on_waited()
        error = (
            StreamBrokenError
            if isinstance(self.machine.command, ReadFrames)
            else ConnectFailedError
        )
        self.machine.on_error(error("stopped"), self.now)
        self.now += RESUME_S + 1

    @rule(name=NAMES)
    def write(self, name):
        self.server.write(name)

    @precondition(lambda self: self.server.objects)
    @rule(data=st.data())
    def delete(self, data):
        self.server.delete(data.draw(st.sampled_from(sorted(self.server.objects))))

    @rule()
    def compact(self):
        self.server.compacted = self.server.version

    @rule(seconds=st.sampled_from([0.0, 0.5, 2.0, 60.0]))
    def pass_time(self, seconds):
        self.now += seconds

    # Steps of the driver that succeed.

    @rule(count=st.integers(1, 3), repeat=st.booleans(), data=st.data())
    def step(self, count, repeat, data):
        """Execute the machine's command, as with a healthy server."""
        match self.machine.command:
            case Wait(seconds):
                assert 0 < seconds <= 30
                self.now += seconds
                self.machine.on_waited()
            case RequestPage() as command:
                self.page(command)
            case OpenWatch() as command:
                self.open(command)
            case ReadFrames():
                self.read(count, repeat=repeat, data=data)

    def page(self, command):
        if not command.continue_token:
            objects = [self.server.objects[name] for name in sorted(self.server.objects)]
            self.snapshot = (self.server.version, objects)
            start = 0
        else:
            version, offset = command.continue_token.split(":")
            if int(version) > self.server.version:
                self.machine.on_error(RetryableApiError(500), self.now)
                return
            if int(version) < self.server.compacted:
                self.machine.on_error(ExpiredError(410), self.now)
                return
            start = int(offset)
        version, objects = self.snapshot
        end = start + (command.limit or len(objects))
        more = f"{version}:{end}" if end < len(objects) else ""
        self.view.take(self.machine.on_page(objects[start:end], str(version), more))

    def open(self, command):
        assert 1 <= command.timeout_seconds <= 600
        if command.send_initial_events:
            self.initial = [
                frame("ADDED", self.server.objects[n]) for n in sorted(self.server.objects)
            ]
            self.initial.append(bookmark(self.server.version, end=True))
            self.sent = self.server.version
        else:
            self.initial = None
            version = int(command.resource_version)
            if version < self.server.compacted:
                self.machine.on_error(ExpiredError(410), self.now)
                return
            self.sent = version
        self.machine.on_opened(self.now)

    def read(self, count, *, repeat, data):
        if self.initial:
            frames, self.initial = self.initial[:count], self.initial[count:]
        elif self.sent < self.server.version:
            self.sent += 1
            frames = [frame(*self.server.history[self.sent - 1])]
            if repeat:
                # The server repeats an event from any time.
                past = data.draw(st.integers(1, self.sent))
                frames.append(frame(*self.server.history[past - 1]))
        elif self.sent > self.server.version:  # from the future: nothing comes
            self.fall_silent()
            return
        else:
            frames = [bookmark(self.sent)]
        self.view.take(self.machine.on_frames(frames, self.now))

    # Steps of the driver that fail.

    @precondition(lambda self: not isinstance(self.machine.command, Wait))
    @rule(error=FAULTS)
    def fail(self, error):
        self.machine.on_error(error, self.now)

    @precondition(lambda self: isinstance(self.machine.command, OpenWatch))
    @rule(error=st.sampled_from([ExpiredError(410), InvalidError(422)]))
    def refuse(self, error):
        self.machine.on_error(error, self.now)

    @precondition(lambda self: isinstance(self.machine.command, ReadFrames))
    @rule(code=st.sampled_from([410, 429, 500, 0]))
    def error_event(self, code):
        self.view.take(self.machine.on_frames([frame("ERROR", {"code": code})], self.now))

    @precondition(lambda self: isinstance(self.machine.command, ReadFrames))
    @rule()
    def end(self):
        self.machine.on_eof(self.now)

    @precondition(lambda self: isinstance(self.machine.command, ReadFrames))
    @rule()
    def fall_silent(self):
        idle = self.machine.command.idle_s
        assert 30 <= idle <= 45
        self.now += idle
        self.machine.on_silence(self.now)

    # Invariants.

    @invariant()
    def view_is_a_moment_of_history(self):
        """The view is the collection at the view's version: no object is missing or repeated."""
        if self.view.version is not None and not self.view.restored:
            assert self.server.as_of(self.view.version) == self.view.objects

    @invariant()
    def version_never_goes_back(self):
        """Lists are consistent, so not even a new list is older within one history."""
        if self.view.went_back:
            self.view.went_back, self.highest = False, 0
        if self.view.version is not None:
            assert self.view.version >= self.highest
            self.highest = self.view.version
            assert not is_older(self.machine.resource_version, str(self.view.version))

    def teardown(self):
        """Without further faults the view catches up in a bounded number of steps."""
        for _ in range(40 + 4 * self.server.version):
            caught_up = self.view.version == self.server.version and self.machine.listed
            if caught_up and not self.view.restored:
                break
            match self.machine.command:
                case ReadFrames() if self.view.restored and self.sent == self.server.version:
                    self.end()  # the connection to the stopped server
                case ReadFrames() if not self.initial and self.sent < self.server.version:
                    self.sent += 1
                    frames = [frame(*self.server.history[self.sent - 1])]
                    self.view.take(self.machine.on_frames(frames, self.now))
                case _:
                    self.step_calmly()
        assert self.server.objects == self.view.objects
        assert self.server.version == self.view.version

    def step_calmly(self):
        match self.machine.command:
            case Wait():
                self.machine.on_waited()
            case RequestPage() as command:
                self.page(command)
            case OpenWatch() as command:
                self.open(command)
            case ReadFrames():
                self.read(3, repeat=False, data=None)


class FaultyStreamingWatch(FaultyWatch):
    """The same machine with streaming lists."""

    streaming = True


TestFaultyWatch = FaultyWatch.TestCase
TestFaultyWatch.settings = settings(max_examples=80, stateful_step_count=60)
TestFaultyStreamingWatch = FaultyStreamingWatch.TestCase
TestFaultyStreamingWatch.settings = settings(max_examples=80, stateful_step_count=60)
