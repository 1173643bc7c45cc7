"""Fixtures of the test kit; pytest finds them where this package is installed.

Nothing is imported before a test asks for one of them, and nothing is done to other tests.
``jobsetpy.testing`` has what they are made of.
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
def run_manager(
    kube_world: World,
) -> Callable[..., AbstractAsyncContextManager[Manager]]:
    """Makes managers against ``kube_world``, each from functions as of ``jobsetpy run``."""
    from jobsetpy.testing import running_manager

    def run(*setups: Setup) -> AbstractAsyncContextManager[Manager]:
        return running_manager(kube_world, *setups)

    return run


@pytest.fixture
def virtual_time() -> VirtualTime:
    """Runs coroutines in virtual time: ``virtual_time.run(scenario())``."""
    from jobsetpy.testing import VirtualTime

    return VirtualTime()


@pytest.fixture
def fake_api_server(tmp_path: Path) -> Iterator[ServedApi]:
    """A fake API server over HTTP in a thread of its own, with a ``kubeconfig``."""
    from jobsetpy.testing import ServedApi

    with ServedApi(tmp_path / "fake.kubeconfig") as served:
        yield served
