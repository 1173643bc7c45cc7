"""Scripted faults: rules that define which requests fail, how, and how often.

A rule is created by one call and is active until it has hit ``count`` requests, or until
``lift()``. Rules about watch streams also hit streams that are already open.
"""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from typing import Literal, Protocol, TypedDict, Unpack

import attrs

Action = Literal["status", "latency", "lose", "cut", "stall"]


@attrs.frozen(kw_only=True)
class Target:
    """Target of a request, in the terms of authorization rules.

    ``verb`` is get, list, watch, create, update, patch, apply or delete; for other paths it is the
    HTTP method in lower case and ``resource`` is "". ``resource`` is the plural, with ``/status``
    and the like for subresources.
    """

    verb: str
    resource: str = ""
    namespace: str = ""
    name: str = ""
    user_agent: str = ""
    path: str = ""


class Select(TypedDict, total=False):
    """Selection of the requests that a rule hits.

    Patterns as in ``fnmatch``, "*" when absent; :class:`Target` defines the fields. ``count`` is
    the number of requests (or streams) to hit, ``None`` for all; ``skip`` the number to pass first.
    """

    verb: str
    resource: str
    namespace: str
    name: str
    user_agent: str
    count: int | None
    skip: int


@attrs.define(eq=False, kw_only=True)
class Pattern:
    """Patterns of a :class:`Target`, as in ``fnmatch``."""

    verb: str = "*"
    resource: str = "*"
    namespace: str = "*"
    name: str = "*"
    user_agent: str = "*"

    def matches(self, target: Target) -> bool:
        """Return whether a request has such a target."""
        return all(
            fnmatchcase(getattr(target, field.name), getattr(self, field.name))
            for field in attrs.fields(Pattern)
        )


@attrs.define(eq=False, kw_only=True)
class Rule(Pattern):
    """One rule; keep it to count its ``hits`` or to ``lift`` it."""

    action: Action
    count: int | None = None
    skip: int = 0
    code: int = 0
    retry_after: float | None = None
    message: str = ""
    seconds: float = 0.0
    after_events: int = 0
    reset: bool = False
    hits: int = attrs.field(default=0, init=False)
    lifted: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)

    @property
    def spent(self) -> bool:
        """True if it has hit ``count`` requests, or was lifted."""
        return self.lifted.is_set() or (self.count is not None and self.hits >= self.count)

    def take(self) -> bool:
        """Count one matching request; return whether the rule hits it."""
        if self.spent:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.hits += 1
        return True

    def lift(self) -> None:
        """End the rule; stalled requests continue."""
        self.lifted.set()


class OpenStream(Protocol):
    """Open watch, as the rules see it; the watch itself imports the rules."""

    target: Target

    def bind(self, rule: Rule) -> None:
        """Apply a ``cut`` or ``stall`` rule that hit this stream."""

    def end(self, code: int | None = None) -> None:
        """End cleanly; with a code, send an ERROR event first."""


class Faults:
    """Fault rules of a :class:`FakeApiServer`.

    Every method that creates a rule returns it. All take the keyword arguments of :class:`Select`.
    """

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._streams: dict[OpenStream, None] = {}

    def status(
        self,
        code: int,
        *,
        retry_after: float | None = None,
        message: str = "",
        **select: Unpack[Select],
    ) -> Rule:
        """Respond with this status (429, 500, 503, 401, ...) without executing the request."""
        rule = Rule(action="status", code=code, retry_after=retry_after, message=message, **select)
        return self._add(rule)

    def latency(self, seconds: float, **select: Unpack[Select]) -> Rule:
        """Delay requests before they are handled."""
        return self._add(Rule(action="latency", seconds=seconds, **select))

    def lose_answer(self, **select: Unpack[Select]) -> Rule:
        """Execute the request, then drop the connection: the client cannot know the result.

        Hits one request unless ``count`` is given.
        """
        select.setdefault("count", 1)
        return self._add(Rule(action="lose", **select))

    def cut(
        self,
        *,
        after_events: int = 0,
        reset: bool = False,
        **select: Unpack[Select],
    ) -> Rule:
        """Drop the connection in the middle of a response; an ordinary one ends after its headers.

        Hits one request or stream unless ``count`` is given. Open watches are hit as well.

        Args:
            after_events: for watches: number of further events (including bookmarks) before the
                cut; 0 cuts immediately.
            reset: reset the connection, which may lose data sent before, instead of closing it.
            **select: selection of requests.
        """
        select.setdefault("count", 1)
        rule = Rule(
            action="cut",
            after_events=after_events,
            reset=reset,
            **select,
        )
        return self._add(rule)

    def stall(self, *, after_events: int = 0, **select: Unpack[Select]) -> Rule:
        """Stop sending without closing, until the rule is lifted or the client disconnects.

        Hits one request or stream unless ``count`` is given; arguments as for ``cut``.
        """
        select.setdefault("count", 1)
        rule = Rule(action="stall", after_events=after_events, **select)
        return self._add(rule)

    def end_watches(self, **select: Unpack[Select]) -> int:
        """End open watches cleanly, as a server does on their timeout; return their number."""
        return self._end(None, select)

    def fail_watches(self, code: int = 410, **select: Unpack[Select]) -> int:
        """Send an ERROR event into open watches and end them; return their number."""
        return self._end(code, select)

    def clear(self) -> None:
        """Lift every rule."""
        for rule in self._rules:
            rule.lift()
        self._rules.clear()

    # -- for the server ----------------------------------------------------------------------

    def take(self, action: Action, target: Target) -> Rule | None:
        """Return the first rule with that action that hits this request."""
        for rule in self._live():
            if rule.action == action and rule.matches(target) and rule.take():
                return rule
        return None

    def opened(self, stream: OpenStream) -> None:
        """Register a watch that begins, and apply rules to it."""
        self._streams[stream] = None
        for rule in self._live():
            if rule.action in {"cut", "stall"} and rule.matches(stream.target) and rule.take():
                stream.bind(rule)

    def closed(self, stream: OpenStream) -> None:
        """Unregister a watch that has ended."""
        self._streams.pop(stream, None)

    @property
    def open_watches(self) -> list[Target]:
        """Targets of the watches that are open now."""
        return [stream.target for stream in self._streams]

    def _live(self) -> list[Rule]:
        self._rules = [rule for rule in self._rules if not rule.spent]
        return self._rules

    def _add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        if rule.action in {"cut", "stall"}:
            for stream in tuple(self._streams):
                if rule.matches(stream.target) and rule.take():
                    stream.bind(rule)
        return rule

    def _end(self, code: int | None, select: Select) -> int:
        chosen = Rule(action="cut", **select)
        taken = [one for one in self._streams if chosen.matches(one.target) and chosen.take()]
        for stream in taken:
            stream.end(code)
        return len(taken)
