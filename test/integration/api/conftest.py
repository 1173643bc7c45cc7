"""Plain HTTP to the real API server, for tests of its raw responses, warnings included."""

import json
import urllib.error
import urllib.parse
import urllib.request
import uuid

import attrs
import pytest
import yaml

from hack.generate import update_crds
from support import patience

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobsets.jobset.x-k8s.io"
GROUP = "/apis/jobset.x-k8s.io/v1alpha2"


@attrs.frozen
class Answer:
    """Response of the API server."""

    status: int
    body: dict
    warnings: list

    @property
    def message(self):
        """The text of a Status object."""
        return self.body.get("message", "")

    def accepted(self):
        """Return the body of a successful response."""
        assert self.status < 300, self.message

        return self.body


class RealApi:
    """Requests as the user of a kubeconfig, or with another token."""

    def __init__(self, kubeconfig):
        self.server, self.tls, self.token = update_crds.from_kubeconfig(kubeconfig)

    def __call__(
        self, method, path, body=None, *, content_type=None, token=None, accept=None, **query
    ):
        url = self.server + path + ("?" + urllib.parse.urlencode(query) if query else "")
        headers = {
            "Accept": accept or "application/json",
            "Content-Type": content_type or "application/json",
        }
        if bearer := token or self.token:
            headers["Authorization"] = f"Bearer {bearer}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(
                request, timeout=patience.scaled(30), context=self.tls
            ) as response:
                return self._answer(response)
        except urllib.error.HTTPError as error:
            with error:
                return self._answer(error)

    def apply(self, path, body, **query):
        """Server-side apply; unknown fields are an error."""
        query = {"fieldManager": "test", "force": "true", "fieldValidation": "Strict", **query}
        return self("PATCH", path, body, content_type="application/apply-patch+yaml", **query)

    @staticmethod
    def _answer(response):
        text = response.read()
        try:
            body = json.loads(text)
        except ValueError:
            body = {"message": text.decode(errors="replace")}
        return Answer(response.status, body, response.headers.get_all("Warning", []))


@pytest.fixture(scope="session")
def make_api():
    """The client class, for control planes of a test's own."""
    return RealApi


@pytest.fixture(scope="session")
def api(cluster):
    """The API server, with the CRD installed."""
    api = RealApi(cluster.kubeconfig)
    api.apply(CRD, yaml.safe_load(update_crds.CRD.read_text())).accepted()

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
