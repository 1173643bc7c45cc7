"""What documentation's commands find in a cluster, and what they leave behind."""

from __future__ import annotations

import subprocess

import docs_kit
import pytest

CLUSTER_KINDS = (
    "namespaces,clusterroles,clusterrolebindings,customresourcedefinitions,"
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,"
    "validatingadmissionpolicybindings,flowschemas,prioritylevelconfigurations,nodes"
)
DEFAULT_KINDS = "deployments,services,secrets,roles,rolebindings,jobs,pods"


def pages(place):
    """Pages with commands for a place; those with wrong marks fail in a test of their own."""
    found = []
    for path in docs_kit.PAGES:
        try:
            page = docs_kit.read(path)
        except docs_kit.MarkError:
            continue
        if page.at(place):
            found.append(pytest.param(page, id=page.name))
    return found


class Surroundings:
    """What is in the cluster, so that a page leaves it as it found it."""

    def __init__(self, env) -> None:
        self.env = env
        self.before = self.names()

    def kubectl(self, *words, check=True):
        return subprocess.run(
            ["kubectl", *words],
            env=self.env,
            check=check,
            capture_output=True,
            text=True,
            timeout=90,
        ).stdout

    def names(self):
        default = self.kubectl("get", DEFAULT_KINDS, "-n", "default", "-o", "name")
        return {
            *self.kubectl("get", CLUSTER_KINDS, "-o", "name").split(),
            *(f"default:{name}" for name in default.split()),
        }

    def restore(self):
        # JobSets first: once their definition is gone, they cannot be deleted any more.
        self.kubectl("delete", "jobsets", "--all", "-A", "--wait=false", check=False)
        more = sorted(self.names() - self.before)
        webhooks = [name for name in more if "webhook" in name]
        own = [name for name in more if ":" not in name and name not in webhooks]
        of_default = [name.partition(":")[2] for name in more if ":" in name]
        for words in (webhooks, own, of_default):
            if words:
                self.kubectl("delete", "--ignore-not-found", "-n", "default", *words)

    def install(self, folder):
        """As a page takes for granted; the webhooks' Secret is filled by whoever runs."""
        self.kubectl("apply", "--server-side", "-k", str(docs_kit.ROOT / "config" / folder))

    def wait_until_installed(self):
        """Until the manager's pod is ready; a failure shows what it says."""
        home = ("-n", "jobset-system")
        status = ("rollout", "status", "deployment", "jobset-controller-manager")
        try:
            self.kubectl(*home, *status, "--timeout=85s")
        except subprocess.CalledProcessError as error:
            pods = self.kubectl(*home, "describe", "pods", check=False)
            log = self.kubectl(*home, "logs", "deployment/jobset-controller-manager", check=False)
            pytest.fail(f"{error.stderr}\n{pods[-3000:]}\n{log[-3000:]}")

    def uninstall(self):
        """Take away what other tests left, so that pages begin with an empty cluster."""
        folder = str(docs_kit.ROOT / "config/default")
        self.kubectl("delete", "--ignore-not-found", "-k", folder, check=False)
        self.before = self.names()
