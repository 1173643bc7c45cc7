"""What the tests of admission share."""

import asyncio
import copy
import json
import ssl

from jobsetpy.client import HttpRequest

JOBS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"


def job(name: str = "w", replicas: int = 1, *, pod=None, spec=None, **fields) -> dict:
    containers = [{"name": "c", "image": "test.invalid/c:1"}]
    template = {"spec": {"containers": containers, **(pod or {})}}
    return {
        "name": name,
        "replicas": replicas,
        "template": {"spec": {"template": template, **(spec or {})}},
        **fields,
    }


def jobset(*jobs: dict, name: str = "js", **spec) -> dict:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": list(jobs or (job(),)), **spec},
    }


class Api:
    """Plain JSON of JobSets in one namespace."""

    def __init__(self, client, namespace: str) -> None:
        self.client = client
        self.path = JOBS.format(namespace)

    async def create(self, body: dict) -> dict:
        data = json.dumps(body).encode()
        return await self._send(HttpRequest(method="POST", path=self.path, body=data))

    async def try_create(self, body: dict) -> dict:
        """What would be stored; nothing is."""
        data = json.dumps(body).encode()
        path = f"{self.path}?dryRun=All"
        return await self._send(HttpRequest(method="POST", path=path, body=data))

    async def set_status(self, stored: dict, status: dict) -> dict:
        """Replace the status."""
        body = json.dumps({**stored, "status": status}).encode()
        path = f"{self.path}/{stored['metadata']['name']}/status"
        return await self._send(HttpRequest(method="PUT", path=path, body=body))

    async def change(self, stored: dict, value, *path, dry_run: bool = False) -> dict:
        """Replace the object by one with ``value`` at ``path``; ``None`` removes the field."""
        new = copy.deepcopy(stored)
        at = new
        for part in path[:-1]:
            at = at[part] if isinstance(at, list) else at.setdefault(part, {})
        if value is None:
            at.pop(path[-1], None)
        else:
            at[path[-1]] = value
        path = f"{self.path}/{stored['metadata']['name']}{'?dryRun=All' if dry_run else ''}"
        body = json.dumps(new).encode()
        return await self._send(HttpRequest(method="PUT", path=path, body=body))

    async def _send(self, request: HttpRequest) -> dict:
        return json.loads((await self.client.raw(request)).body)


async def served_certificate(port: int) -> bytes:
    """The certificate (DER) that the server on ``port`` shows now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
        await writer.wait_closed()
