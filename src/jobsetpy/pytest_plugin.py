"""Fixtures of the test kit; pytest finds them where this package is installed.

Nothing is imported before a test requests a fixture, and other tests are not affected. The
fixtures are built from ``jobsetpy.testing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jobsetpy.manager import Manager
    from jobsetpy.testing import ServedApi, VirtualTime, World
    from jobsetpy.testing._running import Setup


@pytest.fixture
def kube_world() -> World:
    """An empty cluster in memory, with a garbage collector."""
    from jobsetpy.testing import World

    world = World()
    world.garbage_collect = True
    return world


@pytest.fixture
def run_manager(kube_world: World) -> Callable[..., AbstractAsyncContextManager[Manager]]:
    """Factory of managers against ``kube_world``; takes setup functions like ``jobsetpy run``."""
    from jobsetpy.testing import running_manager

    def run(*setups: Setup) -> AbstractAsyncContextManager[Manager]:
        return running_manager(kube_world, *setups)

    return run


@pytest.fixture
def virtual_time() -> VirtualTime:
    """Runner of coroutines in virtual time: ``virtual_time.run(scenario())``."""
    from jobsetpy.testing import VirtualTime

    return VirtualTime()


@pytest.fixture
def fake_api_server(tmp_path: Path) -> Iterator[ServedApi]:
    """A fake API server over HTTP in its own thread, with a ``kubeconfig``."""
    from jobsetpy.testing import ServedApi

    with ServedApi(tmp_path / "fake.kubeconfig") as served:
        yield served
