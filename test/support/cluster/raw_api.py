"""Plain HTTP to a real API server, without an event loop, for its raw responses and warnings."""

import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import attrs
import yaml

from support import patience

OVERLOADED_S = 60.0
"""Time for which a request is repeated while the API server is overloaded."""


def credentials(kubeconfig):
    """Return server, TLS context and token of a kubeconfig, as ``hack/cluster`` writes it."""
    config = yaml.safe_load(Path(kubeconfig).read_text())
    (cluster,), (user,) = (
        [each[kind] for each in config[f"{kind}s"]] for kind in ("cluster", "user")
    )
    authorities = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return cluster["server"], ssl.create_default_context(cadata=authorities), user["token"]


@attrs.frozen
class Answer:
    """Response of the API server."""

    status: int
    text: str
    headers: dict
    body: dict

    @property
    def message(self):
        """The text of a Status object, or of a response that is not JSON."""
        return self.body.get("message", "")

    @property
    def warnings(self):
        """Texts of its warnings."""
        return self.headers.get_all("Warning", [])

    def accepted(self):
        """Return the body of a successful response."""
        assert self.status < 300, self.message

        return self.body


class RawApi:
    """Requests as the user of a kubeconfig, or with another token."""

    def __init__(self, kubeconfig):
        self.kubeconfig = kubeconfig
        self.server, self.tls, self.token = credentials(kubeconfig)

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
        deadline = time.monotonic() + patience.scaled(OVERLOADED_S)
        while (answer := self._answer(request)).status == 429 and time.monotonic() < deadline:
            time.sleep(0.1)
        return answer

    def _answer(self, request):
        try:
            with urllib.request.urlopen(
                request, timeout=patience.scaled(30), context=self.tls
            ) as response:
                return _read(response)
        except urllib.error.HTTPError as error:
            with error:
                return _read(error)

    def apply(self, path, body, **query):
        """Server-side apply; unknown fields are an error."""
        query = {"fieldManager": "test", "force": "true", "fieldValidation": "Strict", **query}
        return self("PATCH", path, body, content_type="application/apply-patch+yaml", **query)


def _read(response):
    text = response.read().decode(errors="replace")
    try:
        body = json.loads(text)
    except ValueError:
        body = {"message": text}
    return Answer(response.status, text, response.headers, body)
