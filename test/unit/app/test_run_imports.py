"""Modules in the process of a library's user: no JobSet controllers, nothing unused."""

import json
import sys

import pytest

from support.commands import run

PROGRAM = """
import json, sys
from jobsetpy import runtime as rt

def setup(manager):
    found = manager.informer(rt.ConfigMap)

    class Quiet:
        async def reconcile(self, request):
            return rt.Result.done()

    watch = rt.Watch(found, rt.enqueue_self)
    manager.add(rt.Controller(name="quiet", reconciler=Quiet(), watches=[watch]))
    print(json.dumps(sorted(sys.modules)))
    sys.exit(0)
"""
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "me", "user": {}}],
    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    "current-context": "here",
}
WHEN_USED = {"aiohttp.web", "cattrs", "cryptography", "jobsetpy.api.schema", "rich", "urllib3.util"}
"""Modules for servers, configuration files, certificates, CRDs and passwords."""
OF_JOBSET = ("admission", "coscheduler", "kubectl", "reconcilers", "api.jobset")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Modules that are loaded when ``jobsetpy run`` has set up a controller."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "mine.py").write_text(PROGRAM)
    (folder / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    command = (sys.executable, "-m", "jobsetpy.app.main", "run", "mine:setup")
    done = run(*command, "--kubeconfig=kubeconfig", cwd=folder)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_nothing_of_jobset_is_imported(loaded):
    """A custom controller does not load the controllers of JobSet."""
    ours = tuple(f"jobsetpy.{name}" for name in OF_JOBSET)
    assert {name for name in loaded if name.startswith(ours)} == set()


def test_the_crd_is_printed_without_a_manager():
    """The command needs neither clients nor metrics."""
    code = "import sys; from jobsetpy.app.main import main; main(['crds']); print(*sys.modules)"
    done = run(sys.executable, "-c", code, check=True)
    assert "jobsetpy.api.schema" in done.stdout.splitlines()[-1].split()
    assert "jobsetpy.manager" not in done.stdout.splitlines()[-1].split()


def test_unused_modules_are_not_imported(loaded):
    """A controller that serves nothing loads no server, no certificates and no schemas."""
    assert loaded & WHEN_USED == set()
