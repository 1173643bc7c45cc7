"""Costs of events do not grow with the number of gangs."""

from __future__ import annotations

from bench.gang_events import World


def test_cost_of_an_event_does_not_grow_with_the_number_of_gangs():
    """Calls of functions are counted."""
    few, many = (World(n).costs() for n in (200, 1000))
    assert [what for what, calls in many.items() if calls > 1.2 * few[what]] == []
