"""State of the cluster for the documentation's commands, which is restored after each page."""

from __future__ import annotations

import subprocess

import pytest

from support import patience
from support.commands import run
from support.docs import docs_kit

CLUSTER_KINDS = (
    "namespaces,clusterroles,clusterrolebindings,customresourcedefinitions,"
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,"
    "validatingadmissionpolicybindings,flowschemas,prioritylevelconfigurations,nodes"
)
DEFAULT_KINDS = "deployments,services,secrets,roles,rolebindings,jobs,pods"


def pages(place):
    """Return pages with commands for a place; those with invalid marks fail in another test.

    Pages that assume an installation come first: it is made once.
    """
    found = []
    for path in docs_kit.PAGES:
        try:
            page = docs_kit.read(path)
        except docs_kit.MarkError:
            continue
        if page.at(place):
            found.append(page)
    found.sort(key=lambda page: (not page.installed, page.name))
    return [pytest.param(page, id=page.name) for page in found]


class Surroundings:
    """Objects in the cluster; a page leaves it as it was.

    Args:
        env: of kubectl.
        folder: of ``config``, which is installed for pages that assume an installation.
        ready: True if its manager becomes ready here.
    """

    def __init__(self, env, folder, *, ready) -> None:
        self.env = env
        self.folder = str(docs_kit.ROOT / "config" / folder)
        self.ready = ready
        self.empty = None
        self.before = set()

    def prepare(self, page):
        """Install what a page assumes, or remove it."""
        if page.installed:
            words = ("apply", "--server-side", "--force-conflicts", "-k", self.folder)
            self.kubectl(*words)
            if self.ready:
                self.wait_until_installed()
        elif self.empty is None:
            if "namespace/jobset-system" in self.names():
                self.kubectl("delete", "--ignore-not-found", "-k", self.folder, check=False)
            # Readers of such a page may have the CRD, and nothing else.
            crd = str(docs_kit.ROOT / "config/crd")
            self.kubectl("apply", "--server-side", "--force-conflicts", "-k", crd)
            self.empty = self.before = self.names()
            return
        if not self.before:
            self.before = self.names()

    def kubectl(self, *words, check=True):
        return run("kubectl", *words, timeout_s=180, check=check, env=self.env).stdout

    def names(self):
        default = self.kubectl("get", DEFAULT_KINDS, "-n", "default", "-o", "name")
        return {
            *self.kubectl("get", CLUSTER_KINDS, "-o", "name").split(),
            *(f"default:{name}" for name in default.split()),
        }

    def restore(self):
        """Delete objects that a page created."""
        # JobSets first: without their CRD they cannot be deleted.
        self.kubectl("delete", "jobsets", "--all", "-A", "--wait=false", check=False)
        more = sorted(self.names() - self.before)
        webhooks = [name for name in more if "webhook" in name]
        own = [name for name in more if ":" not in name and name not in webhooks]
        of_default = [name.partition(":")[2] for name in more if ":" in name]
        for words in (webhooks, own, of_default):
            if words:
                self.kubectl("delete", "--ignore-not-found", "-n", "default", *words)

    def wait_until_installed(self):
        """Wait until the manager's pod is ready; a failure shows its log."""
        home = ("-n", "jobset-system")
        status = ("rollout", "status", "deployment", "jobset-controller-manager")
        try:
            self.kubectl(*home, *status, f"--timeout={patience.scaled(150):.0f}s")
            # A page before may have had more pods, which are being deleted.
            patience.wait_for(
                lambda: len(self.kubectl(*home, "get", "pods", "-o", "name").split()) <= 1,
                60,
                poll_s=0.5,
            )
        except subprocess.CalledProcessError as error:
            pods = self.kubectl(*home, "describe", "pods", check=False)
            log = self.kubectl(*home, "logs", "deployment/jobset-controller-manager", check=False)
            pytest.fail(f"{error.stderr}\n{pods[-3000:]}\n{log[-3000:]}")
