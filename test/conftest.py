"""Configuration of pytest for all tests."""

import asyncio
import gc
import signal

import pytest
from hypothesis import HealthCheck, settings

from support import patience

# No deadline for examples: a busy machine is not a defect.
settings.register_profile("jobsetpy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("jobsetpy")


def pytest_configure() -> None:
    """Restore Python's default handler of SIGINT.

    Background jobs of a shell ignore SIGINT, and programs that tests start would inherit that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    """Keep the looptime plugin from creating an event loop for tests that need none.

    The plugin gets the loop from the policy before each test. The first such call creates a loop
    that is never closed; once the loop has been set to None, it raises an error instead.
    """
    asyncio.set_event_loop(None)


def pytest_collection_finish() -> None:
    """Leave thousands of tests and modules out of later full passes of the garbage collector."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    """Show the factor of time-outs."""
    return f"time-outs: those of an idle machine times {patience.FACTOR:.1f}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Scale the time-outs of tests: those in the configuration, and those of marks."""
    for item in items:
        if "integration" in item.path.parts and not _has_cluster_marker(item):
            msg = f"{item.nodeid} uses a cluster, but has no marker for it"
            raise pytest.UsageError(msg)
    default = config.getini("timeout") if config.getoption("timeout") is None else None
    for item in items:
        mark = item.get_closest_marker("timeout")
        if seconds := mark.args[0] if mark else default:
            item.add_marker(pytest.mark.timeout(patience.scaled(float(seconds))), append=False)


def _has_cluster_marker(item: pytest.Item) -> bool:
    if "cluster" not in getattr(item, "fixturenames", ()):
        return True
    return any(item.get_closest_marker(mark) for mark in ("cluster", "node", "clients"))
