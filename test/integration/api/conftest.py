"""Plain HTTP to the real API server, for tests of its raw responses, warnings included."""

import uuid

import pytest
import yaml

from hack.generate import update_crds
from hack.generate.kustomize import LOADER
from support import patience
from support.cluster.raw_api import RawApi

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobsets.jobset.x-k8s.io"
GROUP = "/apis/jobset.x-k8s.io/v1alpha2"


@pytest.fixture(scope="session")
def make_api():
    """The client class, for control planes of a test's own."""
    return RawApi


@pytest.fixture(scope="session")
def api(cluster):
    """The API server, with the CRD installed."""
    api = RawApi(cluster.kubeconfig)
    api.apply(CRD, yaml.load(update_crds.CRD.read_text(), LOADER)).accepted()

    def served():
        return api("GET", "/apis/jobset.x-k8s.io/v1alpha2/jobsets").status == 200

    patience.wait_for(served)
    return api


@pytest.fixture(scope="module")
def namespace(api):
    """A namespace of the module's own."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    api("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).accepted()
    yield name
    api("DELETE", f"/api/v1/namespaces/{name}")


class JobSets:
    """JobSets of one namespace."""

    def __init__(self, api, namespace):
        self.api = api
        self.path = f"{GROUP}/namespaces/{namespace}/jobsets"

    def make(self, spec, *, dry_run=True, **top):
        body = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": f"j-{uuid.uuid4().hex[:8]}"},
            **top,
        }
        if spec is not None:
            body["spec"] = spec
        query = {"dryRun": "All"} if dry_run else {}
        return self.api("POST", self.path, body, **query)

    def replace(self, obj, subresource="", **query):
        path = f"{self.path}/{obj['metadata']['name']}{subresource}"
        return self.api("PUT", path, obj, **query)


@pytest.fixture(scope="module")
def jobsets(api, namespace):
    """JobSets of the module's namespace."""
    return JobSets(api, namespace)
