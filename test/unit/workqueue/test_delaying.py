"""The heap of deadlines."""

from jobsetpy.workqueue import DelayHeap


def test_items_are_popped_in_order_of_their_deadlines():
    """Items with equal deadlines keep their order of insertion, and none is popped early."""
    heap = DelayHeap()
    heap.put("late", 3.0, 0)
    heap.put("b", 2.0, 0)
    heap.put("c", 2.0, 0)
    heap.put("a", 1.0, 0)

    assert heap.next_due() == 1.0
    assert heap.pop_due(2.0) == [("a", 0), ("b", 0), ("c", 0)]
    assert heap.next_due() == 3.0
    assert len(heap) == 1


def test_an_item_put_twice_keeps_the_earlier_deadline_and_the_higher_priority():
    """The order of the two calls does not matter."""
    heap = DelayHeap()
    heap.put("a", 5.0, 1)
    heap.put("a", 9.0, 7)
    heap.put("b", 9.0, 7)
    heap.put("b", 4.0, 1)

    assert heap.pop_due(5.0) == [("b", 7), ("a", 7)]
    assert heap.pop_due(100.0) == []
    assert heap.next_due() is None


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
