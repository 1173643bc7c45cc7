"""Requests by a plain aiohttp loop, as fast as possible: no cache, no queue, no decisions."""

from __future__ import annotations

import base64
import ssl
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import yaml

IN_FLIGHT = 64
JOBS_PATH = "/apis/batch/v1/namespaces/{}/jobs"
_FOREGROUND = b'{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}'


class BareLoop:
    """A session with the server of a kubeconfig, with a number of connections."""

    def __init__(self, kubeconfig: str, in_flight: int = IN_FLIGHT) -> None:
        config = yaml.safe_load(Path(kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cafile=_file(cluster, "certificate-authority"))
        self.headers = {}
        if "token" in user:
            self.headers["Authorization"] = f"Bearer {user['token']}"
        else:
            context.load_cert_chain(_file(user, "client-certificate"), _file(user, "client-key"))
        self.server = cluster["server"]
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=in_flight)
        )

    async def send(
        self, method: str, path: str, body: bytes, *, content_type: str = "application/json"
    ) -> bytes:
        """Send a request; return the answer's body. Raise an error on a failure."""
        headers = {**self.headers, "Content-Type": content_type}
        url = self.server + path
        async with self.session.request(method, url, data=body, headers=headers) as answer:
            content = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"bare {method} {path}: {answer.status} {content[:300]!r}")
            return content

    async def create_job(self, namespace: str, body: bytes) -> None:
        await self.send("POST", JOBS_PATH.format(namespace), body)

    async def delete_job(self, namespace: str, name: str) -> None:
        await self.send("DELETE", f"{JOBS_PATH.format(namespace)}/{name}", _FOREGROUND)

    async def close(self) -> None:
        await self.session.close()


def _file(block: dict[str, Any], key: str) -> str:
    """Write a part of a kubeconfig to a file, which ssl requires."""
    if key + "-data" not in block:
        return block[key]
    file = tempfile.NamedTemporaryFile(delete=False)  # noqa: SIM115 - read by name
    file.write(base64.b64decode(block[key + "-data"]))
    file.close()
    return file.name


def as_sent(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the body with which a stored Job was created, as far as it can be derived."""
    spec = {k: v for k, v in stored["spec"].items() if k != "selector"}
    template = dict(spec["template"])
    meta = dict(template["metadata"])
    meta["labels"] = {
        k: v
        for k, v in meta.get("labels", {}).items()
        if "controller-uid" not in k and "job-name" not in k
    }
    meta.pop("creationTimestamp", None)
    spec["template"] = {**template, "metadata": meta}
    own = stored["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": own["name"],
            "labels": own["labels"],
            "annotations": own.get("annotations", {}),
        },
        "spec": spec,
    }
