"""Statuses that a played kubelet reports, as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from jobsetpy.api.timestamps import seconds_text

LONG_AGO = "2020-01-01T00:00:00Z"


def now() -> str:
    """Return the current time in the API's format."""
    return seconds_text(datetime.now(UTC))


def container(state: dict[str, Any], name: str = "c", *, restarts: int = 0) -> dict[str, Any]:
    """Return the status of a container in a state."""
    runs = "running" in state
    image = {"image": "test.invalid/c:1", "imageID": ""}
    counts = {"restartCount": restarts, "ready": runs, "started": runs}
    return {"name": name, **image, **counts, "state": state}


def running(*names: str) -> dict[str, Any]:
    """Return the status of a pod whose containers run and are ready."""
    return {
        "phase": "Running",
        "conditions": [{"type": kind, "status": "True"} for kind in ("Initialized", "Ready")],
        "containerStatuses": [container({"running": {"startedAt": now()}}, one) for one in names],
    }


def ended(code: int, *names: str, at: str = LONG_AGO) -> dict[str, Any]:
    """Return the status of a pod whose containers have ended with an exit code.

    By default they ended long ago, so that the Job controller creates the next pod without a
    back-off.
    """
    state = {"terminated": {"exitCode": code, "finishedAt": at}}
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": [],
        "containerStatuses": [container(state, one) for one in names],
    }
