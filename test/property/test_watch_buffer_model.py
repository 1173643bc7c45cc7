"""A slow reader of the coalescing buffer ends with the same view as one that reads everything."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jobsetpy.informers import (
    Applied,
    Bookmark,
    CoalescingBuffer,
    Deleted,
    ListCompleted,
    Listed,
    ListStarted,
)
from support.informers_kit import Meta, Thing

NAMES = "abc"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(NAMES)),
        st.tuples(st.just("delete"), st.sampled_from(NAMES)),
        st.tuples(st.sampled_from(["list", "broken list", "bookmark"]), st.integers(0, 3)),
        st.tuples(st.just("read"), st.integers(1, 6)),
    ),
    max_size=60,
)


class View:
    """A consumer of events, with the UIDs of all objects."""

    def __init__(self):
        self.objects = {}
        self.staged = None

    def take(self, event):
        match event:
            case ListStarted():
                self.staged = {}
            case Listed(thing):
                self.staged[thing.metadata.name] = thing
            case ListCompleted():
                self.objects, self.staged = self.staged, None
            case Applied(thing):
                (self.objects if self.staged is None else self.staged)[thing.metadata.name] = thing
            case Deleted(thing):
                target = self.objects if self.staged is None else self.staged
                target.pop(thing.metadata.name, None)


@settings(max_examples=300)
@given(steps=STEPS)
def test_slow_reader_ends_with_the_same_view(steps):
    """This holds for any order of reads and changes, and the buffer stays bounded."""
    buffer, view, truth = CoalescingBuffer(), View(), {}
    for clock, (what, argument) in enumerate(steps, start=1):
        match what:
            case "write":
                old = truth.get(argument)
                uid = old.metadata.uid if old else str(clock)
                truth[argument] = Thing(Meta(argument, "ns", uid, str(clock)))
                buffer.put([Applied(truth[argument])])
            case "delete":
                if argument in truth:
                    buffer.put([Deleted(truth.pop(argument))])
            case "bookmark":
                buffer.put([Bookmark(str(clock))])
            case "list":
                buffer.put([ListStarted(), *map(Listed, truth.values()), ListCompleted(str(clock))])
            case "broken list":
                # It stops in the middle; only a complete list may follow.
                buffer.put([ListStarted(), *map(Listed, list(truth.values())[:argument])])
                for _ in range(argument):
                    if (event := buffer.pop()) is not None:
                        view.take(event)
                buffer.put([ListStarted(), *map(Listed, truth.values()), ListCompleted(str(clock))])
            case "read":
                for _ in range(argument):
                    if (event := buffer.pop()) is not None:
                        view.take(event)
        assert len(buffer) <= 4 * len(NAMES)
    while (event := buffer.pop()) is not None:
        view.take(event)

    assert truth == view.objects
    assert view.staged is None
