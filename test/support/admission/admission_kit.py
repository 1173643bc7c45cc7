"""JobSets as JSON for tests of admission, and requests for them."""

import asyncio
import ssl

from support.admission.forms import with_value
from support.cluster import objects
from support.cluster.json_api import send

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
    return objects.jobset(name, *(jobs or [job()]), **spec)


class Api:
    """Requests for JobSets in one namespace, with JSON bodies."""

    def __init__(self, client, namespace: str) -> None:
        self.client = client
        self.path = JOBS.format(namespace)

    async def create(self, body: dict) -> dict:
        return await send(self.client, "POST", self.path, body)

    async def try_create(self, body: dict) -> dict:
        """Return the object that would be stored, by a dry run."""
        return await send(self.client, "POST", f"{self.path}?dryRun=All", body)

    async def set_status(self, stored: dict, status: dict) -> dict:
        """Replace the status."""
        path = f"{self.path}/{stored['metadata']['name']}/status"
        return await send(self.client, "PUT", path, {**stored, "status": status})

    async def change(self, stored: dict, value, *path, dry_run: bool = False) -> dict:
        """Replace the object by one with ``value`` at ``path``; ``None`` removes the field."""
        query = "?dryRun=All" if dry_run else ""
        url = f"{self.path}/{stored['metadata']['name']}{query}"
        return await send(self.client, "PUT", url, with_value(stored, path, value))


async def served_certificate(port: int) -> bytes:
    """Return the current certificate (DER) of the server on ``port``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
        await writer.wait_closed()
