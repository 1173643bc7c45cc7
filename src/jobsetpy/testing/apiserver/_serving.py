"""Fake API server in its own thread, with a kubeconfig: for tests of whole programs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import yaml

from jobsetpy.testing.apiserver._server import FakeApiServer

P = ParamSpec("P")
T = TypeVar("T")


def write_kubeconfig(server: FakeApiServer, path: Path) -> Path:
    """Write a kubeconfig of a running server for ``kubectl`` and any client."""
    user = {"token": server.token} if server.token else {}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": server.url}}],
        "users": [{"name": "fake", "user": user}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        "current-context": "fake",
    }
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    path.chmod(0o600)
    return path


class ServedApi:
    """``FakeApiServer`` that runs in a thread for the duration of the block.

    ::

        with ServedApi(tmp_path / "kubeconfig") as api:
            api.call(FakeApiServer.create, "configmaps", {"metadata": {"name": "a"}})
            subprocess.run(["my-program"], env={"KUBECONFIG": str(api.kubeconfig)})

    Args:
        kubeconfig: path to write its kubeconfig to.
        **settings: arguments of ``FakeApiServer``.
    """

    def __init__(self, kubeconfig: Path, **settings: Any) -> None:
        self.kubeconfig = kubeconfig
        self.url = ""
        self._settings = settings
        self._server: FakeApiServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._main, name="fake-api-server", daemon=True)

    def __enter__(self) -> Self:
        """Start; return when it serves."""
        self._thread.start()
        self._up.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop, and wait for the thread."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def call(
        self, method: Callable[Concatenate[FakeApiServer, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a method of the server in its thread: ``api.call(FakeApiServer.list, "pods")``.

        Any function that takes the server works as well; its exceptions are raised here.
        """
        assert self._loop is not None, "the server does not run"
        return asyncio.run_coroutine_threadsafe(
            self._call(method, *args, **kwargs), self._loop
        ).result()

    async def _call(
        self, method: Callable[Concatenate[FakeApiServer, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        assert self._server is not None, "the server does not run"
        return method(self._server, *args, **kwargs)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
            self._failure = error
        finally:
            self._up.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with FakeApiServer(**self._settings) as server:
            self._server, self.url = server, server.url
            server.garbage_collect = True
            write_kubeconfig(server, self.kubeconfig)
            self._up.set()
            await self._stop.wait()
