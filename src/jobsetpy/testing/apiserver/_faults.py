"""Scripted faults: rules that say which requests go wrong, how, and how often.

A rule is made by one call and works until it has hit ``count`` requests, or until ``lift()``.
Rules about watch streams also hit the streams that are open already.
"""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from typing import Literal, Protocol, TypedDict, Unpack

import attrs

Action = Literal["status", "latency", "lose", "cut", "stall", "duplicate", "drop_bookmarks"]


@attrs.frozen(kw_only=True)
class Target:
    """What a request is about, as authorization rules name it.

    ``verb`` is get, list, watch, create, update, patch, apply, delete or deletecollection; for
    paths that are no resources it is the HTTP method in lower case and ``resource`` is "".
    ``resource`` is the plural, with ``/status`` and the like for subresources.
    """

    verb: str
    resource: str = ""
    namespace: str = ""
    name: str = ""
    user_agent: str = ""
    path: str = ""


class Select(TypedDict, total=False):
    """Which requests a rule is about.

    Patterns as of ``fnmatch``, "*" when absent; see :class:`Target` for what they mean. ``count``
    is how many requests (or streams) are hit, ``None`` for all; ``skip`` how many pass first.
    """

    verb: str
    resource: str
    namespace: str
    name: str
    user_agent: str
    count: int | None
    skip: int


@attrs.define(eq=False, kw_only=True)
class Rule:
    """One rule; keep it to count its ``hits`` or to ``lift`` it."""

    action: Action
    verb: str = "*"
    resource: str = "*"
    namespace: str = "*"
    name: str = "*"
    user_agent: str = "*"
    count: int | None = None
    skip: int = 0
    code: int = 0
    retry_after: float | None = None
    message: str = ""
    seconds: float = 0.0
    after_events: int = 0
    after_bytes: int | None = None
    times: int = 1
    reset: bool = False
    hits: int = attrs.field(default=0, init=False)
    lifted: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)

    def matches(self, target: Target) -> bool:
        """Whether the rule is about this request."""
        return (
            fnmatchcase(target.verb, self.verb)
            and fnmatchcase(target.resource, self.resource)
            and fnmatchcase(target.namespace, self.namespace)
            and fnmatchcase(target.name, self.name)
            and fnmatchcase(target.user_agent, self.user_agent)
        )

    @property
    def spent(self) -> bool:
        """Whether it has hit as often as it should, or was lifted."""
        return self.lifted.is_set() or (self.count is not None and self.hits >= self.count)

    def take(self) -> bool:
        """Count one matching request; whether the rule hits it."""
        if self.spent:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.hits += 1
        return True

    def lift(self) -> None:
        """End the rule; what it stalls goes on."""
        self.lifted.set()


class OpenStream(Protocol):
    """An open watch, as the script sees it."""

    target: Target

    def bind(self, rule: Rule) -> None:
        """Obey a ``cut`` or ``stall`` rule that hit this stream."""

    def end(self, code: int | None = None) -> None:
        """End cleanly; with a code, send an ERROR event first."""


class Faults:
    """The script of a :class:`FakeApiServer`.

    Every method that makes a rule returns it. All take the keyword arguments of :class:`Select`.
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
        """Answer with this status (429, 500, 503, 401, ...) instead of doing anything."""
        rule = Rule(action="status", code=code, retry_after=retry_after, message=message, **select)
        return self._add(rule)

    def latency(self, seconds: float, **select: Unpack[Select]) -> Rule:
        """Wait before a request is handled."""
        return self._add(Rule(action="latency", seconds=seconds, **select))

    def lose_answer(self, **select: Unpack[Select]) -> Rule:
        """Do what was asked, then drop the connection: the client cannot know that it worked.

        Hits one request unless ``count`` says otherwise.
        """
        select.setdefault("count", 1)
        return self._add(Rule(action="lose", **select))

    def cut(
        self,
        *,
        after_events: int = 0,
        after_bytes: int | None = None,
        reset: bool = False,
        **select: Unpack[Select],
    ) -> Rule:
        """Drop the connection in the middle of an answer.

        Hits one request or stream unless ``count`` says otherwise. Open watches are hit as well.

        Args:
            after_events: watches: after that many more events (bookmarks count), at once for 0.
            after_bytes: after that many bytes of the body; in a watch, of the event that comes
                after ``after_events``. Without it an ordinary answer ends after its headers.
            reset: reset the connection, which may lose what was sent before, instead of closing.
            **select: which requests.
        """
        select.setdefault("count", 1)
        rule = Rule(
            action="cut",
            after_events=after_events,
            after_bytes=after_bytes,
            reset=reset,
            **select,
        )
        return self._add(rule)

    def stall(
        self, *, after_events: int = 0, after_bytes: int | None = None, **select: Unpack[Select]
    ) -> Rule:
        """Stop sending without closing, until the rule is lifted or the client goes away.

        Hits one request or stream unless ``count`` says otherwise; arguments as for ``cut``.
        """
        select.setdefault("count", 1)
        rule = Rule(action="stall", after_events=after_events, after_bytes=after_bytes, **select)
        return self._add(rule)

    def duplicate(self, *, times: int = 2, **select: Unpack[Select]) -> Rule:
        """Send watch events ``times`` times; ``count`` limits how many events are repeated."""
        return self._add(Rule(action="duplicate", times=times, **select))

    def drop_bookmarks(self, **select: Unpack[Select]) -> Rule:
        """Send no bookmarks, as a server may, but for the one that ends initial events."""
        return self._add(Rule(action="drop_bookmarks", **select))

    def end_watches(self, **select: Unpack[Select]) -> int:
        """End open watches cleanly, as a server does when their time is up; how many."""
        return self._end(None, select)

    def fail_watches(self, code: int = 410, **select: Unpack[Select]) -> int:
        """Send an ERROR event into open watches and end them; how many."""
        return self._end(code, select)

    def clear(self) -> None:
        """Lift every rule."""
        for rule in self._rules:
            rule.lift()
        self._rules.clear()

    # -- for the server ----------------------------------------------------------------------

    def take(self, action: Action, target: Target) -> Rule | None:
        """The first rule with that action that hits this request."""
        for rule in self._live():
            if rule.action == action and rule.matches(target) and rule.take():
                return rule
        return None

    def opened(self, stream: OpenStream) -> None:
        """A watch begins."""
        self._streams[stream] = None
        for rule in self._live():
            if rule.action in {"cut", "stall"} and rule.matches(stream.target) and rule.take():
                stream.bind(rule)

    def closed(self, stream: OpenStream) -> None:
        """A watch has ended."""
        self._streams.pop(stream, None)

    @property
    def open_watches(self) -> list[Target]:
        """What is being watched at the moment."""
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
        hit = [stream for stream in self._streams if chosen.matches(stream.target)]
        taken = [stream for stream in hit if chosen.take()]
        for stream in taken:
            stream.end(code)
        return len(taken)
