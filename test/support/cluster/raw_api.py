"""Plain HTTP to a real API server, without an event loop, for its raw responses and warnings."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request

import attrs

from jobsetpy.kubectl import kubeconfig as kubeconfigs
from support import patience

OVERLOADED_S = 60.0
"""Time for which a request is repeated while the API server is overloaded."""


def credentials(kubeconfig):
    """Return server, TLS context and token (or ``None``) of a kubeconfig's current context."""
    config = kubeconfigs._load(str(kubeconfig), {})
    context = kubeconfigs._part(config, "context", config["current-context"])
    cluster, user = (kubeconfigs._part(config, part, context[part]) for part in ("cluster", "user"))
    return cluster["server"], kubeconfigs._tls(cluster, user), user.get("token")


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
