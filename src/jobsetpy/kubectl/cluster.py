"""Requests to the user's cluster, as plain JSON: a plugin reads each object once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Final, TypeVar

from jobsetpy.api import keys
from jobsetpy.client import ByteStream, HttpRequest, error_from_response
from jobsetpy.errors import JobSetPyError, NotFoundError
from jobsetpy.kubectl.errors import CommandError, explain
from jobsetpy.kubectl.kubeconfig import Options, Target, target
from jobsetpy.kubectl.output import clean

TIMEOUT_S: Final = 20.0
JOBSETS: Final = "/apis/jobset.x-k8s.io/v1alpha2"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

Json = dict[str, Any]
T = TypeVar("T")


class Cluster:
    """The API server, one namespace of it.

    Args:
        where: what was found.
    """

    def __init__(self, where: Target) -> None:
        self._transport = where.transport
        self.server = where.server
        self.namespace = where.namespace
        self.away_at = -inf
        """Time of the event loop at which the API server was away; ``-inf`` if it has answered."""

    async def get(self, path: str, *query: tuple[str, str]) -> Json:
        """Read JSON."""
        return await self.send("GET", path, query=query)

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: tuple[tuple[str, str], ...] = (),
        content_type: str = "application/json",
    ) -> Json:
        """Send a request.

        Raises:
            JobSetPyError: it failed.
        """
        request = HttpRequest(
            method=method,
            path=path,
            query=query,
            body=None if body is None else json.dumps(body).encode(),
            content_type=content_type,
            timeout_s=TIMEOUT_S,
        )
        answer = await self._transport.request(request)
        for name, value in answer.headers.items():
            if name.lower() == "warning":  # such as `299 - "text"`
                said = clean(value.partition('"')[2].removesuffix('"').replace('\\"', '"'))
                print(f"Warning: {said}", file=sys.stderr)  # noqa: T201
        if answer.status >= 300:
            raise error_from_response(
                answer.status, answer.headers, answer.body, verb=method.lower(), target=path
            )
        try:
            found = json.loads(answer.body) if answer.body else {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise CommandError(
                f"error: {self.server} answers {method} {path} with something else than a "
                "Kubernetes object: is it an API server?"
            )
        return found

    @asynccontextmanager
    async def stream(self, path: str, *query: tuple[str, str]) -> AsyncIterator[ByteStream]:
        """Read a body as it comes.

        Raises:
            JobSetPyError: it failed, or the connection broke.
        """
        request = HttpRequest(
            method="GET", path=path, query=query, accept="*/*", timeout_s=TIMEOUT_S
        )
        async with self._transport.stream(request) as stream:
            if stream.status >= 300:
                body = await stream.read()
                raise error_from_response(
                    stream.status, stream.headers, body, verb="get", target=path
                )
            yield stream

    async def jobset(self, name: str) -> Json:
        """A JobSet.

        Raises:
            CommandError: JobSets are not installed.
        """
        path = f"{JOBSETS}/namespaces/{self.namespace}/jobsets/{name}"
        try:
            return await self.get(path)
        except NotFoundError as error:
            if f'"{name}"' in error.message:  # else the path itself is unknown
                raise
            raise CommandError(
                'error: the server doesn\'t have a resource type "jobsets": the CRD of JobSets is '
                "not installed in this cluster"
            ) from None

    async def dry_run(self, manifest: Json, namespace: str) -> Json:
        """Have the API server judge a JobSet as if it was applied; nothing is stored."""
        meta = manifest.get("metadata") or {}
        path = f"{JOBSETS}/namespaces/{namespace}/jobsets"
        strict = (("dryRun", "All"), ("fieldValidation", "Strict"))
        if not meta.get("name"):
            return await self.send("POST", path, manifest, query=strict)
        query = (*strict, ("fieldManager", "kubectl-jobset"), ("force", "true"))
        path += f"/{meta['name']}"
        return await self.send("PATCH", path, manifest, query=query, content_type=APPLY_PATCH)

    async def jobsets(self) -> list[Json]:
        """All JobSets of the namespace."""
        return await self.items(f"{JOBSETS}/namespaces/{self.namespace}/jobsets")

    async def items(self, path: str, *query: tuple[str, str]) -> list[Json]:
        """All objects of a list."""
        out: list[Json] = []
        more: tuple[tuple[str, str], ...] = ()
        while True:
            page = await self.get(path, *query, ("limit", "1000"), *more)
            out += page.get("items") or []
            token = page.get("metadata", {}).get("continue")
            if not token:
                return out
            more = (("continue", token),)

    async def jobs(self, name: str) -> list[Json]:
        """Jobs with the label of a JobSet."""
        path = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        return await self.items(path, ("labelSelector", f"{keys.JOBSET_NAME}={name}"))

    async def pods(self, name: str) -> list[Json]:
        """Pods with the label of a JobSet."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        return await self.items(path, ("labelSelector", f"{keys.JOBSET_NAME}={name}"))

    async def aclose(self) -> None:
        """Close connections."""
        await self._transport.aclose()


def _first(failed: Exception) -> Exception:
    return _first(failed.exceptions[0]) if isinstance(failed, ExceptionGroup) else failed


def run(
    options: Options,
    environ: Mapping[str, str],
    command: Callable[[Cluster], Coroutine[Any, Any, T]],
    *,
    long: bool = False,
) -> T:
    """Run a command against the user's cluster.

    Raises:
        CommandError: it failed.
    """

    async def main() -> T:
        where = await target(options, environ, long=long)
        cluster = Cluster(where)
        try:
            try:
                return await command(cluster)
            except ExceptionGroup as failed:  # of a command with several tasks
                raise _first(failed) from None
        except JobSetPyError as error:
            raise CommandError(explain(error, where.server)) from error
        except (KeyError, TypeError, AttributeError) as problem:
            # Objects of another version, or of a proxy's making: fields are not what they were.
            raise CommandError(
                f"error: an object of {where.server} is not as this release knows it "
                f"({type(problem).__name__}: {problem})"
            ) from problem
        finally:
            await cluster.aclose()

    return asyncio.run(main())
