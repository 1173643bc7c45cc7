"""Commands of the watch machine to its driver.

This module is on the agent's start-up path: standard library and msgspec only.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class RequestPage(msgspec.Struct, frozen=True):
    """Request a page of a consistent list; ``continue_token`` is "" for the first."""

    continue_token: str
    limit: int


class OpenWatch(msgspec.Struct, frozen=True):
    """Open a watch after ``resource_version`` that the server ends after ``timeout_seconds``."""

    resource_version: str
    timeout_seconds: int
    send_initial_events: bool = False


class ReadFrames(msgspec.Struct, frozen=True):
    """Read from the open watch, for at most ``idle_s`` seconds."""

    idle_s: float


class Wait(msgspec.Struct, frozen=True):
    """Wait; no stream is open."""

    seconds: float


Command: TypeAlias = RequestPage | OpenWatch | ReadFrames | Wait
