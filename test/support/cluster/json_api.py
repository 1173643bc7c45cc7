"""Plain JSON to and from an API server, and one JobSet as it is stored there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

import msgspec

from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet, JobSetStatus
from jobsetpy.api.meta import Condition
from jobsetpy.client import Client, HttpRequest, HttpResponse
from jobsetpy.errors import ApiError, NotFoundError, TransportError
from support.patience import eventually

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
T = TypeVar("T")


async def exchange(
    client: Client,
    method: str,
    path: str,
    body: Any = None,
    *,
    content_type: str = "",
    timeout_s: float = 30.0,
    query: Iterable[tuple[str, str]] = (),
    **parameters: str,
) -> HttpResponse:
    """Send a request and return the response.

    Args:
        client: client of the API server.
        method: HTTP method.
        path: path without the query.
        body: JSON data; ``None`` sends no body.
        content_type: type of the body; a PATCH is a merge patch by default.
        timeout_s: timeout of the exchange, in seconds.
        query: parameters whose names are no Python names.
        parameters: further parameters.

    Raises:
        ApiError: the API server refused the request.
    """
    request = HttpRequest(
        method=method,
        path=path,
        query=(*query, *parameters.items()),
        body=None if body is None else msgspec.json.encode(body),
        content_type=content_type or (MERGE if method == "PATCH" else "application/json"),
        timeout_s=timeout_s,
    )
    return await client.raw(request)


async def send(client: Client, method: str, path: str, body: Any = None, **options: Any) -> Any:
    """Send a request and return the JSON data of the response; arguments of :func:`exchange`."""
    return msgspec.json.decode((await exchange(client, method, path, body, **options)).body)


async def exists(client: Client, path: str) -> bool:
    """Return whether there is an object at a path."""
    try:
        await send(client, "GET", path)
    except NotFoundError:
        return False
    return True


async def insist(
    request: Callable[..., Awaitable[T]],
    *,
    wanted: Callable[[], bool] = lambda: True,
    unless: tuple[type[ApiError], ...] = (NotFoundError,),
    **options: Any,
) -> T | None:
    """Send a request until it succeeds, for example while the API server is away.

    Args:
        request: sends it, with ``options``.
        wanted: checked before each attempt.
        unless: errors that end the attempts.

    Returns:
        The answer; ``None`` after one of these errors, or when it is not wanted any longer.
    """
    while wanted():
        try:
            return await request(**options)
        except unless:
            return None
        except (ApiError, TransportError):
            await asyncio.sleep(0.3)
    return None


class StoredJobSet:
    """A JobSet in a namespace, read from the API server.

    Attributes:
        limit_s: timeout for conditions, in seconds of an idle machine.
        poll_s: interval between reads.
    """

    limit_s = 10.0
    poll_s = 0.05

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self.client = client
        self.namespace = namespace
        self.name = name

    async def jobset(self) -> JobSet:
        """Return the JobSet."""
        return await self.client.get(JobSet, self.namespace, self.name)

    async def reaches(self, check: Callable[[JobSetStatus], T], seconds: float = 30.0) -> T:
        """Wait until a check of the status returns a true result; return that."""

        async def checked() -> T:
            found = check(status := (await self.jobset()).status)
            assert found, status
            return found

        return await eventually(checked, seconds)

    async def is_gone(self) -> bool:
        """Return whether the JobSet has been deleted."""
        return not await exists(self.client, JobSet.RESOURCE.path(self.namespace, self.name))

    @contextlib.asynccontextmanager
    async def living(self, body: dict) -> AsyncIterator[None]:
        """Create the JobSet; at the end of the block, delete it and wait until its pods are gone."""
        await self.client.create(JobSet, self.namespace, body)
        try:
            yield
        finally:
            await self.client.delete(JobSet, self.namespace, self.name, propagation="Foreground")
            await eventually(self.is_gone, 120)

    @contextlib.asynccontextmanager
    async def deleted(self) -> AsyncIterator[None]:
        """Delete the JobSet at the end of the block."""
        try:
            yield
        finally:
            with contextlib.suppress(Exception):
                await self.client.delete(
                    JobSet, self.namespace, self.name, propagation="Background"
                )

    async def reaches_epoch(self, epoch: int, seconds: float = 30.0) -> None:
        """Wait until the pods of an epoch may run."""
        await self.reaches(lambda status: status.synced_epoch == epoch, seconds)

    async def reaches_spares(self, count: int, seconds: float = 120.0) -> InPlaceRestartStatus:
        """Wait until the restarts in place have a number of ready spares; return their status."""

        def found(status: JobSetStatus) -> InPlaceRestartStatus | None:
            record = status.in_place_restart
            return record if record is not None and record.ready_spares == count else None

        return await self.reaches(found, seconds)

    async def reaches_condition(
        self, kind: str, text: str = "", seconds: float = 30.0
    ) -> Condition:
        """Wait until a condition with a text in its message is true; return it."""

        def found(status: JobSetStatus) -> Condition | None:
            true = (
                each for each in status.conditions if (each.type, each.status) == (kind, "True")
            )
            return next((each for each in true if text in each.message), None)

        return await self.reaches(found, seconds)

    async def read(self, cls: Any, name: str) -> Any:
        """Return an object as JSON."""
        return await send(self.client, "GET", cls.RESOURCE.path(self.namespace, name))

    async def read_all(self, cls: Any) -> dict[str, dict]:
        """Return all objects of the namespace as JSON, by name."""
        items = (await send(self.client, "GET", cls.RESOURCE.path(self.namespace)))["items"]
        return {item["metadata"]["name"]: item for item in items}

    async def change(self, body: dict, name: str = "") -> None:
        """Merge a patch into the JobSet, or another one, as its user."""
        await self.client.merge_patch(JobSet, self.namespace, name or self.name, body)

    async def status(self, name: str = "") -> dict:
        """Return the status of the JobSet, or another one."""
        return (await self.read(JobSet, name or self.name)).get("status", {})

    async def condition(self, kind: str) -> tuple[str, str] | None:
        """Return status and reason of a condition."""
        for item in (await self.status()).get("conditions", ()):
            if item["type"] == kind:
                return item["status"], item["reason"]
        return None

    async def restarts(self) -> tuple[int, int]:
        """Return the number of restarts of the whole JobSet, and of those that count."""
        status = await self.status()
        return status.get("restarts", 0), status.get("restartsCountTowardsMax", 0)

    async def until(self, check: Callable[..., Awaitable[None]], *args: Any, **more: Any) -> None:
        """Wait until ``check`` passes, a coroutine function that asserts."""

        async def passes() -> bool:
            await check(*args, **more)
            return True

        await eventually(passes, self.limit_s, poll_s=self.poll_s)

    async def until_equal(
        self, read: Callable[..., Awaitable[Any]], expected: Any, *args: Any
    ) -> None:
        """Wait until ``read``, called with the arguments, returns a value."""

        async def check() -> None:
            assert await read(*args) == expected

        await self.until(check)

    async def until_condition(self, kind: str, status: str, reason: str) -> None:
        """Wait for a condition."""
        await self.until_equal(self.condition, (status, reason), kind)

    async def until_completed(self) -> None:
        """Wait for the JobSet's success."""
        await self.until_condition("Completed", "True", "AllJobsCompleted")
        assert (await self.status())["terminalState"] == "Completed"
        assert await self.condition("Failed") is None

    async def until_failed(self, reason: str) -> None:
        """Wait for the JobSet's failure."""
        await self.until_condition("Failed", "True", reason)
        assert (await self.status())["terminalState"] == "Failed"
        assert await self.condition("Completed") is None
