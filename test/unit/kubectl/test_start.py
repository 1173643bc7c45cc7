"""What a command imports before it asks: a plugin is started anew for every question."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEVER = {
    *("aiohttp", "kubernetes_asyncio", "cattrs", "cryptography", "prometheus_client", "re2"),
    *("structlog", "uvloop", "h2", "pydantic"),
}
"""Of the manager, or slow; none of it is needed for a question."""
LATER = {"rich", "yaml"}
"""Imported by what prints, and by what reads a kubeconfig."""
FOR_A_QUESTION = {"asyncio", "attrs", "msgspec", "ssl", "h11", "jobsetpy.client"}

HELP = """
import contextlib, io, sys
from jobsetpy.kubectl import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main.main(["--help"])
"""
STATUS = """
import sys
import jobsetpy.kubectl.cluster, jobsetpy.kubectl.kubeconfig
from jobsetpy.kubectl import main
main.parser("status").parse_args(["status", "a"])
"""
PREFIXES = ("jobsetpy.domain.coscheduling", "jobsetpy.domain.children", "jobsetpy.reconcilers")


@pytest.mark.parametrize(
    ("code", "never"), [(HELP, NEVER | LATER | FOR_A_QUESTION), (STATUS, NEVER | LATER)]
)
def test_what_is_imported(code, never):
    """Time depends on the machine; what is imported does not."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = set(done.stdout.split())

    assert "jobsetpy.kubectl.main" in found
    assert set() == found & never
    assert [] == [name for name in sorted(found) if name.startswith(PREFIXES)]
