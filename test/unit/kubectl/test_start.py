"""Imports of the plugin, which starts for every command."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEVER = {
    *("aiohttp", "kubernetes_asyncio", "cattrs", "cryptography", "prometheus_client", "re2"),
    *("structlog", "uvloop", "pydantic"),
    *("attr", "attrs", "rich", "typing_extensions"),
}
"""Modules of the manager, or slow ones; no command needs them."""
TO_SEND = {"asyncio", "msgspec", "ssl", "h11", "jobsetpy.client"}

HELP = """
import contextlib, io, sys
from jobsetpy.kubectl import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main.main(["--help"])
"""
SEND = """
import contextlib, io, sys
from jobsetpy.kubectl import main
with contextlib.redirect_stderr(io.StringIO()) as err:
    assert main.main(["--kubeconfig", sys.argv[2], sys.argv[1], "a"]) == 1
assert "127.0.0.1:1" in err.getvalue(), err.getvalue()
"""
"""A command up to its first request: no server listens there."""
SHOW = """
import asyncio, contextlib, io, json, sys
from jobsetpy.kubectl import main
chosen = sys.argv[1]
options = main.parser(chosen).parse_args([chosen, "a"])
options.output = ""
command = main.module(chosen)
from jobsetpy.client import HttpResponse
from jobsetpy.kubectl.cluster import Cluster
from jobsetpy.kubectl.kubeconfig import Target
META = {"name": "a", "namespace": "default", "uid": "u"}
RECORD = {"kind": "InPlace", "number": 2, "beganAt": "2026-01-01T00:00:00Z"}
JOBSET = {
    "metadata": META,
    "spec": {"replicatedJobs": [{"name": "w"}], "failurePolicy": {
        "maxRestarts": 3, "restartStrategy": "InPlaceRestart"}},
    "status": {"state": "Restarting", "syncedEpoch": 1, "deprecatedEpoch": 1,
               "restartHistory": [RECORD]},
}
class Answers:
    async def request(self, request):
        found = JOBSET if request.path.endswith("/jobsets/a") else {"items": []}
        return HttpResponse(200, {}, json.dumps(found).encode())
with contextlib.redirect_stdout(io.StringIO()) as out:
    asyncio.run(command.run(Cluster(Target(Answers(), "https://x", "default")), options))
assert out.getvalue()
"""
CONFIG = """\
apiVersion: v1
clusters:
- cluster:
    certificate-authority: /dev/null
    server: http://127.0.0.1:1
  name: here
contexts:
- context:
    cluster: here
    user: me
  name: here
current-context: here
kind: Config
users:
- name: me
  user:
    token: secret
"""
RULES = {
    *(
        "restart_in_place",
        "restart_in_place.job_controller",
        "restart_in_place.job_controller.replacement_delay",
    ),
    *("rules", "rules.barrier_state", "rules.json_tree", "rules.restart_budget"),
}
API = {
    *(
        "agent_keys",
        "agent_reports",
        "annotations",
        "epoch_report",
        "keys",
        "structs",
        "timestamps",
    ),
}
READING = ("status", "restarts")
WRITING = ("restart", "suspend", "resume")


def imported(code, *arguments):
    """Return the modules that are imported when the code has run."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nprint(*sys.modules)", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def of(package, found):
    """Return the modules of a package, by their names in it."""
    return {name.removeprefix(f"{package}.") for name in found if name.startswith(f"{package}.")}


def test_help_sends_no_request():
    """It imports only modules that its own arguments need."""
    found = imported(HELP)

    assert "jobsetpy.kubectl.main" in found
    assert found & (NEVER | TO_SEND) == set()


@pytest.mark.parametrize(
    ("code", "command"),
    [*((SEND, each) for each in (*READING, *WRITING)), *((SHOW, each) for each in READING)],
    ids=lambda each: {SEND: "send", SHOW: "show"}.get(each, each),
)
def test_command_imports_few_modules(code, command, tmp_path):
    """Its time depends on the machine, but its imports do not."""
    config = tmp_path / "config"
    config.write_text(CONFIG)
    found = imported(code, command, str(config))

    assert "jobsetpy.kubectl.main" in found
    assert found & NEVER == set()
    assert of("jobsetpy.reconcilers", found) <= RULES
    assert of("jobsetpy.api", found) <= API
    assert of("jobsetpy.controller", found) == set()
