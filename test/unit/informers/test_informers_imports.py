"""Modules that importing the informers loads: the agent must not load the caches."""

from __future__ import annotations

import json
import sys

import pytest

import jobsetpy.informers
from support.commands import run

HEAVY = {
    "aiohttp",
    "attr",
    "attrs",
    "cattrs",
    "kubernetes_asyncio",
    "prometheus_client",
    "structlog",
    "uvloop",
    "yaml",
}


def modules_after(statement):
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    return set(json.loads(run(sys.executable, "-c", code, check=True).stdout))


@pytest.mark.parametrize(
    "statement",
    [
        "import jobsetpy.informers._machine",
        "import jobsetpy.informers._watcher",
        "from jobsetpy.informers import NullObserver, WatchOptions",
    ],
)
def test_the_watcher_is_light(statement):
    """The watch machinery loads the standard library and msgspec, and none of the caches."""
    loaded = modules_after(statement)

    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()
    assert {name for name in loaded if name.startswith("jobsetpy.api")} == set()
    assert "jobsetpy.informers._store" not in loaded


def test_every_public_name_loads():
    """All names of ``dir()`` load, and nothing else does."""
    for name in dir(jobsetpy.informers):
        assert getattr(jobsetpy.informers, name) is not None
    with pytest.raises(AttributeError):
        _ = jobsetpy.informers.nonsense
