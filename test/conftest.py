"""What every test needs of its surroundings."""

import asyncio
import signal

import pytest
from hypothesis import HealthCheck, settings

from support import patience

# Examples may take as long as they take: a busy machine is no finding.
settings.register_profile("jobsetpy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("jobsetpy")


def pytest_configure() -> None:
    """Take SIGINT as from a terminal.

    A job in the background of a shell ignores it, and so would all that tests start.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    """Keep the looptime plugin from making an event loop for tests that need none.

    It asks the policy for the loop before every test, and the policy, asked for the first time,
    makes one that nobody closes. Once told that there is none, it says so instead.
    """
    asyncio.set_event_loop(None)


def pytest_report_header() -> str:
    """Say how patient tests are."""
    return f"time-outs: those of an idle machine times {patience.FACTOR:.1f}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Scale the time-outs of tests: those in the configuration, and those of marks."""
    for item in items:
        if "integration" in item.path.parts and not _says_so(item):
            msg = f"{item.nodeid} has a cluster, but not the mark"
            raise pytest.UsageError(msg)
    default = config.getini("timeout") if config.getoption("timeout") is None else None
    for item in items:
        mark = item.get_closest_marker("timeout")
        if seconds := mark.args[0] if mark else default:
            item.add_marker(pytest.mark.timeout(patience.scaled(float(seconds))), append=False)


def _says_so(item: pytest.Item) -> bool:
    if "cluster" not in getattr(item, "fixturenames", ()):
        return True
    return any(item.get_closest_marker(mark) for mark in ("cluster", "node", "clients"))
