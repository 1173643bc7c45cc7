"""Admission webhooks of the fake, which change objects, refuse them or fail."""

import base64
import json
import ssl
from datetime import UTC, datetime

import pytest
from aiohttp import web

from jobsetpy import runtime as rt
from jobsetpy.serving import x509
from jobsetpy.testing import RecordingClient, World

RULE = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps"],
}


class Server:
    """Record requests, label on ``/mutate`` and refuse ``bad`` data on ``/validate``."""

    def __init__(self):
        self.requests = []

    async def __call__(self, path, review):
        request = review["request"]
        self.requests.append((path, request["operation"], request["name"], request["dryRun"]))
        answer = {"uid": request["uid"], "allowed": True}
        obj = request["object"]
        if path == "/mutate":
            labels = {**(obj["metadata"].get("labels") or {}), "seen": "yes"}
            patch = [{"op": "add", "path": "/metadata/labels", "value": labels}]
            answer |= {
                "patchType": "JSONPatch",
                "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
            }
        elif path == "/validate" and obj is not None and "bad" in (obj.get("data") or {}):
            answer |= {"allowed": False, "status": {"code": 422, "message": "bad is not good"}}
        elif path == "/broken":
            raise OSError("connection refused")
        return {**review, "response": answer}


def configure(world, kind, path, **more):
    """Create a configuration with one webhook."""
    hook = {
        "name": f"{path[1:]}.example.com",
        "clientConfig": {"service": {"namespace": "default", "name": "hooks", "path": path}},
        "rules": [RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }
    body = {"metadata": {"name": f"c-{path[1:]}"}, "webhooks": [hook]}
    world.create(f"{kind}webhookconfigurations", body)


@pytest.fixture
def server():
    """The webhooks' server."""
    return Server()


@pytest.fixture
def client(server):
    """A client of a world that calls the server."""
    world = World()
    world.serve_webhooks("default/hooks", server)
    return RecordingClient(world)


def body(name="a", **data):
    """Return a ConfigMap's body."""
    return {"metadata": {"name": name}, "data": data}


async def test_every_write_is_changed_and_validated(client, server):
    """One webhook labels, the other refuses."""
    configure(client.world, "mutating", "/mutate")
    configure(client.world, "validating", "/validate")
    made = await client.create(rt.ConfigMap, "default", body(x="1"))
    assert made.metadata.labels == {"seen": "yes"}
    await client.merge_patch(rt.ConfigMap, "default", "a", {"metadata": {"labels": None}})
    assert client.world.get("configmaps", "a")["metadata"]["labels"] == {"seen": "yes"}
    await client.apply(rt.ConfigMap, "default", "b", {"data": {"y": "1"}}, owner="me")
    assert client.world.get("configmaps", "b")["metadata"]["labels"] == {"seen": "yes"}
    for write in (
        client.create(rt.ConfigMap, "default", body("c", bad="1")),
        client.merge_patch(rt.ConfigMap, "default", "a", {"data": {"bad": "1"}}),
        client.apply(rt.ConfigMap, "default", "d", {"data": {"bad": "1"}}, owner="me"),
    ):
        with pytest.raises(
            rt.InvalidError, match=r'"validate.example.com" denied .*bad is not good'
        ):
            await write
    assert {one["metadata"]["name"] for one in client.world.list("configmaps")} == {"a", "b"}
    assert client.world.get("configmaps", "a")["data"] == {"x": "1"}
    await client.delete(rt.ConfigMap, "default", "a")
    assert server.requests[:2] == [
        ("/mutate", "CREATE", "a", False),
        ("/validate", "CREATE", "a", False),
    ]
    assert not [each for each in server.requests if each[1] == "DELETE"], "no rule matches"


async def test_dry_run_is_reviewed_and_not_stored(client, server):
    """Objects that no rule matches are not reviewed."""
    configure(client.world, "mutating", "/mutate")
    tried = await client.dry_run().create(rt.ConfigMap, "default", body())
    assert tried.metadata.labels == {"seen": "yes"}
    assert client.world.list("configmaps") == []
    await client.create(rt.Namespace, "", {"metadata": {"name": "team"}})
    assert server.requests == [("/mutate", "CREATE", "a", True)]


async def test_selectors_exclude_namespaces_and_objects(client, server):
    """These are not reviewed."""
    selects = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["x", "y"]}]}
    chosen = {"matchLabels": {"checked": "yes"}}
    configure(
        client.world, "validating", "/validate", namespaceSelector=selects, objectSelector=chosen
    )
    client.world.add_namespace("one", labels={"team": "x"})
    labelled = {"metadata": {"name": "a", "labels": {"checked": "yes"}}, "data": {"bad": "1"}}
    await client.create(rt.ConfigMap, "default", labelled)
    await client.create(rt.ConfigMap, "one", body("b", bad="1"))
    assert server.requests == []
    with pytest.raises(rt.InvalidError):
        await client.create(rt.ConfigMap, "one", labelled)


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_failure_policy_is_applied_when_a_webhook_does_not_answer(client, policy):
    """Writes fail with its name, or are stored."""
    configure(client.world, "validating", "/broken", failurePolicy=policy)
    write = client.create(rt.ConfigMap, "default", body(), timeout_s=0.2)
    if policy == "Ignore":
        assert (await write).metadata.name == "a"
        return
    with pytest.raises(rt.ApiError, match=r'failed calling webhook "broken.example.com".*refused'):
        await write
    assert client.world.list("configmaps") == []


async def test_webhook_with_a_url_is_called_over_tls(client, server, tmp_path):
    """It is verified with the bundle of its configuration."""
    authority = x509.new_authority(datetime.now(UTC))
    pair = x509.new_serving(authority, ["127.0.0.1"], datetime.now(UTC))
    for name, content in (("crt", pair.certificate), ("key", pair.key)):
        (tmp_path / name).write_bytes(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")

    async def handle(request):
        return web.json_response(await server(request.path, await request.json()))

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}/mutate"
    try:
        for name, trusted in (("a", authority.certificate), ("b", b"")):
            bundle = {"caBundle": base64.b64encode(trusted).decode()} if trusted else {}
            configure(client.world, "mutating", "/mutate", clientConfig={"url": url, **bundle})
            if trusted:
                made = await client.create(rt.ConfigMap, "default", body(name))
                assert made.metadata.labels == {"seen": "yes"}
            else:
                with pytest.raises(rt.ApiError, match=r"(?i)certificate"):
                    await client.create(rt.ConfigMap, "default", body(name), timeout_s=0.2)
            client.world.delete("mutatingwebhookconfigurations", "c-mutate")
    finally:
        await runner.cleanup()
