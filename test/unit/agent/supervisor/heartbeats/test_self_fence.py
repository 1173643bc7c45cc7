"""Kill of the worker by an agent that is cut off, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobsetpy.agent.supervisor.heartbeats.self_fence import (
    CHECK_S,
    LAST_CALL_S,
    Isolation,
    SelfFence,
    fence_after,
    is_cut_off,
)
from jobsetpy.client import Client, HttpRequest, HttpResponse
from jobsetpy.errors import TransportError
from jobsetpy.reconcilers.restart_in_place.spares.assign_job import HOLDER_WAITS

pytestmark = pytest.mark.looptime

FENCE_S = fence_after(silent_s=2.0, interval_s=0.5)


@pytest.mark.parametrize("interval", [0.1, 0.2, 0.5, 1.0, 3.0, 10.0])
def test_worker_is_dead_before_its_seat_has_another_holder(interval: float) -> None:
    """The time runs from the last beat that neighbours received to the first check after the fence."""
    silent_s = 4 * interval
    killed = interval + fence_after(silent_s=silent_s, interval_s=interval) + CHECK_S

    assert HOLDER_WAITS.last_s == LAST_CALL_S
    assert killed < silent_s + HOLDER_WAITS.last_s
    assert fence_after(silent_s=silent_s, interval_s=interval) > 2 * interval


def isolated(
    seconds: float,
    *,
    beat: Callable[[float], float | None] = lambda _: 0.0,
    progress: Callable[[float], bool] = lambda now: now <= CHECK_S,
) -> float:
    """Return the isolation after some seconds, checked as often as the agent does."""
    isolation, now = Isolation(0.0, beat(0.0)), 0.0
    while now < seconds:
        now += CHECK_S
        isolation.look(now, heard_at=beat(now), progress=progress(now))
    return isolation.seconds


def test_isolation_grows_without_beats_and_without_progress() -> None:
    """The worker made its last step at the first check."""
    assert isolated(3.0) == pytest.approx(2.8)


@pytest.mark.parametrize(
    "signs",
    [
        pytest.param(
            {"beat": lambda now: now}, id="neighbour heard, however long the worker stalls"
        ),
        pytest.param({"progress": lambda _: True}, id="steps, though the network has failed"),
        pytest.param({"beat": lambda _: None}, id="no ring, or no neighbour was ever heard"),
        pytest.param({"progress": lambda _: False}, id="no step yet: it may import or compile"),
    ],
)
def test_isolation_is_zero_with(signs: dict[str, Any]) -> None:
    """One sign is enough, and both are needed to be cut off."""
    assert isolated(60.0, **signs) == 0.0


def test_isolation_does_not_count_time_in_which_the_agent_was_paused() -> None:
    """Beats and answers may be waiting in its sockets."""
    isolation = Isolation(0.0, 0.0)
    isolation.look(CHECK_S, heard_at=0.0, progress=True)
    isolation.look(3600.0, heard_at=0.0, progress=False)

    assert isolation.seconds <= 2 * CHECK_S


def test_answer_of_the_api_server_prevents_the_fence() -> None:
    """The answer would have had a later epoch."""
    isolation = Isolation(0.0, 0.0)
    isolation.look(0.1, heard_at=0.0, progress=True)
    for check in range(1, 100):
        isolation.look(0.1 + check * CHECK_S, heard_at=0.0, progress=False)

    assert not is_cut_off(isolation, 0.0, FENCE_S)
    assert is_cut_off(isolation, 1.0, FENCE_S)


class Place:
    """A pod with a worker's progress file, neighbours, and an API server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()
        self.answers = True
        self.heard_at: float | None = 0.0
        self.requests: list[float] = []
        self.killed: list[float] = []
        client: Any = Client(self)  # type: ignore[arg-type]
        self.fence = SelfFence(
            client, str(path), lambda: self.heard_at, FENCE_S, lambda _: self.killed.append(now())
        )

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Answer as the API server does, or not before the request's timeout."""
        self.requests.append(now())
        if not self.answers:
            await asyncio.sleep(request.timeout_s)
            raise TransportError("no answer")
        return HttpResponse(status=403, headers={}, body=b"")

    async def started(self, steps: int) -> None:
        """Start a worker and let it make steps while neighbours are heard."""
        self.fence.started()
        await self.steps(steps, heard=True)

    async def steps(self, count: int, *, heard: bool) -> None:
        """Let the worker make steps, with or without beats in between."""
        for step in range(count):
            self.path.write_text(f"{step} {now()}")
            if heard:
                self.heard_at = now()
            await asyncio.sleep(CHECK_S)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A pod whose worker has not started."""
    return Place(tmp_path / "progress")


def now() -> float:
    """Return the time of the loop."""
    return asyncio.get_running_loop().time()


async def test_worker_that_is_cut_off_is_killed_in_time(place: Place) -> None:
    """It is killed once, and not before its neighbours may suspect the pod."""
    await place.started(10)
    place.answers, cut = False, now()
    await asyncio.sleep(60)

    (killed,) = place.killed
    assert FENCE_S - CHECK_S <= killed - cut <= FENCE_S + CHECK_S


@pytest.mark.parametrize("reached", ["the API server", "a neighbour", "the next step"])
async def test_worker_is_not_killed_while_one_sign_reaches_its_agent(
    place: Place, reached: str
) -> None:
    """An answer, a beat or a step is enough."""
    await place.started(10)
    place.answers = reached == "the API server"
    for _ in range(300):
        if reached == "the next step":
            await place.steps(1, heard=False)
        else:
            place.heard_at = now() if reached == "a neighbour" else place.heard_at
            await asyncio.sleep(CHECK_S)

    assert place.killed == []
    place.fence.stop()


async def test_api_server_is_not_asked_while_there_are_beats_or_steps(place: Place) -> None:
    """It gets few requests of a worker that stalls while the ring is broken."""
    await place.started(100)
    await place.steps(100, heard=False)
    assert place.requests == []
    await asyncio.sleep(600)

    assert 60 <= len(place.requests) <= 80
    place.fence.stop()


async def test_worker_that_has_ended_is_not_fenced(place: Place) -> None:
    """Nor is the next worker before its first step."""
    await place.started(3)
    place.answers = False
    await asyncio.sleep(1)
    place.fence.stop()
    place.path.write_text("")
    place.fence.started()
    await asyncio.sleep(60)

    assert place.killed == []
    place.fence.stop()
