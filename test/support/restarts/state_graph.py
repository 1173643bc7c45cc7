"""Exhaustive search of the states that events can lead to."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Any


class Violation(AssertionError):  # noqa: N818 - what it is, not that it is an error
    """State that must not be reached."""


class StateGraph:
    """All states that can be reached from a first one; subclasses define them and their events.

    Attributes:
        ids: number of each state.
        states: the states, by number.
        came: for each state the number of a state before it, and the event between them.
        back: for each state the numbers of all states before it, without faults in between.
        goals: numbers of the states in which all work, once liveness was checked.
        events: number of events tried.
    """

    def __init__(self) -> None:
        self.ids: dict[Any, int] = {}
        self.states: list[Any] = []
        self.came: list[tuple[int, str]] = []
        self.back: list[list[int]] = []
        self.goals: list[int] = []
        self.events = 0

    def start(self) -> Any:
        """Return the first state."""
        raise NotImplementedError

    def next_states(self, state: Any) -> Iterator[tuple[str, bool, Any]]:
        """Yield each possible next event: its name, if it is a fault, and the state after it."""
        raise NotImplementedError

    def canonical(self, state: Any) -> Any:
        """Return the same state without differences that have no effect."""
        raise NotImplementedError

    def is_goal(self, state: Any) -> bool:
        """Return True if all work in this state."""
        raise NotImplementedError

    def described(self, state: Any) -> list[str]:
        """Return the lines that describe a state."""
        raise NotImplementedError

    def run(self, *, limit: int = 10_000_000) -> bool:
        """Explore all states; return False if there are more than ``limit``.

        Raises:
            Violation: with the events that lead to it.
        """
        collects = gc.isenabled()
        gc.disable()  # hundreds of thousands of tuples, and no cycles among them
        try:
            return self._search(limit)
        finally:
            if collects:
                gc.enable()

    def _search(self, limit: int) -> bool:
        self._add(self.canonical(self.start()), -1, "start")
        todo = deque([0])
        while todo:
            number = todo.popleft()
            if len(self.states) > limit:
                return False
            try:
                for label, fault, after in self.next_states(self.states[number]):
                    self.events += 1
                    known = len(self.states)
                    found = self._add(self.canonical(after), number, label)
                    if not fault:
                        self.back[found].append(number)
                    if found == known:
                        todo.append(found)
            except Violation as error:
                raise Violation(f"{error}\n{self.way(number)}") from None
        return True

    def _add(self, state: Any, parent: int, label: str) -> int:
        number = self.ids.get(state)
        if number is None:
            number = self.ids[state] = len(self.states)
            self.states.append(state)
            self.came.append((parent, label))
            self.back.append([])
        return number

    def check_liveness(self, *, every_order: bool = False) -> int:
        """Check that from each state, without more faults, a goal can be reached.

        Args:
            every_order: True to check that it is reached in every order of events: there is neither
                an end before it nor a way round.

        Returns:
            The most events that it takes; in the best order, unless every one was checked.
        """
        self.goals = [i for i, state in enumerate(self.states) if self.is_goal(state)]
        left, far = [0] * len(self.states), [-1] * len(self.states)
        for before in chain.from_iterable(self.back):
            left[before] += 1
        for number in self.goals:
            far[number] = 0
        todo = deque(self.goals)
        while todo:
            number = todo.popleft()
            for before in self.back[number]:
                left[before] -= 1
                # The farthest of its next states comes last.
                if far[before] < 0 and not (every_order and left[before]):
                    far[before] = far[number] + 1
                    todo.append(before)
        stuck = [number for number, events in enumerate(far) if events < 0]
        if stuck:  # the last one that was found is at the end of a way, or on a way round
            raise Violation(f"no way on from\n{self.way(stuck[-1])}")
        return max(far)

    def way(self, number: int) -> str:
        """Return the events that lead to a state, and the state."""
        labels, state = [], self.states[number]
        while number >= 0:
            number, label = self.came[number]
            labels.append(label)
        return "\n".join([" -> ".join(reversed(labels)), *self.described(state)])
