"""Markers of tests with other projects' controllers and clients."""

from __future__ import annotations

import pytest


def client_marks(timeout_s: float = 300) -> list[pytest.MarkDecorator]:
    """Return the markers of such a module; its tests share one event loop and one cluster."""
    return [
        pytest.mark.clients,
        pytest.mark.cluster,
        pytest.mark.node,
        pytest.mark.asyncio(loop_scope="session"),
        pytest.mark.timeout(timeout_s),
    ]
