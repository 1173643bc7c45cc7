"""Events that a slow consumer receives, and their order."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.aio import supervise
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


def thing(name, version=1, uid="u"):
    return Thing(Meta(name, "ns", uid, str(version)))


A1, A2, A3, B1 = thing("a", 1), thing("a", 2), thing("a", 3), thing("b", 1)
NEW_A = thing("a", 4, uid="v")


def drain(buffer):
    events = []
    while (event := buffer.pop()) is not None:
        events.append(event)
    return events


@pytest.mark.parametrize(
    ("put", "got"),
    [
        ([], []),
        ([Applied(A1), Applied(B1), Applied(A2)], [Applied(A2), Applied(B1)]),
        ([Applied(A1), Deleted(A2)], [Deleted(A2)]),
        ([Deleted(A2), Applied(NEW_A)], [Deleted(A2), Applied(NEW_A)]),
        ([Deleted(A2), Applied(NEW_A), Deleted(NEW_A)], [Deleted(NEW_A)]),
        ([Bookmark("1"), Bookmark("2")], [Bookmark("2")]),
        ([Bookmark("1"), Applied(A1)], [Applied(A1)]),
        ([Applied(A1), Bookmark("1")], [Applied(A1), Bookmark("1")]),
        (
            [ListStarted(), Listed(A1), ListCompleted("1"), Applied(A2)],
            [ListStarted(), Listed(A1), ListCompleted("1"), Applied(A2)],
        ),
        ([Applied(A1), ListStarted(), Listed(B1)], [Applied(A1), ListStarted(), Listed(B1)]),
        (
            [Applied(A1), ListStarted(), Listed(B1), ListCompleted("1")],
            [ListStarted(), Listed(B1), ListCompleted("1")],
        ),
        (
            [ListStarted(), Listed(A1), ListStarted(), Listed(B1), ListCompleted("1")],
            [ListStarted(), Listed(B1), ListCompleted("1")],
        ),
        (
            [ListStarted(), Listed(A1), Listed(A2), Deleted(A3), ListCompleted("1")],
            [ListStarted(), Deleted(A3), ListCompleted("1")],
        ),
    ],
)
def test_coalescing(put, got):
    """The latest state wins, deletions stay, and a complete list replaces all earlier events."""
    buffer = CoalescingBuffer()
    buffer.put(put)

    assert got == drain(buffer)


def test_list_started_is_repeated_when_a_list_begins_again():
    """A reader in the middle of a list is informed when the list starts over."""
    buffer = CoalescingBuffer()
    buffer.put([ListStarted(), Listed(A1), Listed(B1)])
    assert [buffer.pop(), buffer.pop()] == [ListStarted(), Listed(A1)]

    buffer.put([ListStarted(), Listed(A2), ListCompleted("2")])

    assert drain(buffer) == [ListStarted(), Listed(A2), ListCompleted("2")]


async def test_iterating_waits_for_events():
    """The iterator sleeps while the buffer is empty and wakes for new events."""
    buffer = CoalescingBuffer()
    seen = []

    async def read():
        async for event in buffer:
            seen.append(event)

    async with supervise() as tasks:
        tasks.start(read(), name="read")
        await asyncio.sleep(0)
        assert seen == []
        buffer.put([Applied(A1), Applied(B1)])
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        assert seen == [Applied(A1), Applied(B1)]
