"""Programs that tests run to their end."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

from hack.cluster import Cluster
from support import patience


async def why(cluster: Cluster, jobset: str, namespace: str = "default") -> str:
    """Return the sentences of ``kubectl jobset status`` on what a JobSet does and waits for."""
    words = (sys.executable, "-m", "jobsetpy.kubectl.main", "status", jobset, "-o", "json")
    where = (f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}")
    done = await asyncio.to_thread(run, *words, *where, check=True)
    return " ".join(json.loads(done.stdout)["why"])


def run(
    *words: Any, timeout_s: float = 60.0, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return its exit code and its output as text.

    Args:
        *words: program and arguments.
        timeout_s: time limit on an idle machine, in seconds.
        check: raise an error if the program fails.
        **options: further options of ``subprocess.run``.
    """
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=check,
        timeout=patience.scaled(timeout_s),
        **options,
    )
