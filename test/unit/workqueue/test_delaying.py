"""The heap of deadlines."""

from jobsetpy.workqueue import DelayHeap


def test_outdated_entries_do_not_accumulate():
    """Moving one item's deadline thousands of times keeps the heap small."""
    heap = DelayHeap()
    for due in range(10_000, 0, -1):
        heap.put("a", float(due), 0)

    assert len(heap._heap) < 100
    assert heap.next_due() == 1.0
    assert heap.pop_due(1.0) == [("a", 0)]


def test_clear_removes_all_items():
    """After clear the heap is empty."""
    heap = DelayHeap()
    heap.put("a", 1.0, 0)
    assert "a" in heap
    heap.clear()

    assert "a" not in heap
    assert heap.next_due() is None
