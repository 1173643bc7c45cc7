"""Kubeconfigs, service accounts, and the choice between them."""

import asyncio
import json
import ssl
import subprocess
import sys
from contextlib import aclosing, asynccontextmanager, nullcontext

import pytest
import yaml

from jobsetpy.client import AiohttpTransport, Client, HttpRequest, _aiohttp, connect
from jobsetpy.errors import ConnectFailedError, UnauthorizedError
from support import patience

GET = HttpRequest(method="GET", path="/x", timeout_s=patience.scaled(20))


def kubeconfig(folder, url, user, *, name="config", **cluster):
    """Write a kubeconfig file with two contexts."""
    path = folder / name
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "contexts": [
            {"name": "a", "context": {"cluster": "c", "user": "u"}},
            {"name": "anonymous", "context": {"cluster": "c", "user": "none"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


@asynccontextmanager
async def connected(server, folder, user, context=None, **cluster):
    """Serve requests; yield a client with a kubeconfig."""
    async with server.running(context=context):
        path = kubeconfig(folder, server.url, user, **cluster)
        async with aclosing(await connect(kubeconfig=str(path))) as client:
            yield client


async def sent_token(server, client):
    """Return the credentials that a request of this client carries."""
    await client.raw(GET)
    return server.requests[-1].headers.get("authorization")


def accepting(*valid):
    """Return a handler that answers 401 unless a token is valid."""

    async def handler(exchange):
        fine = exchange.request.headers["authorization"].removeprefix("Bearer ") in valid
        await exchange.reply(200 if fine else 401)

    return handler


def in_cluster(server, certificates, file):
    """Return the transport of a pod with a token file."""
    port = server.url.rpartition(":")[2]
    return AiohttpTransport.in_cluster(
        token_file=str(file),
        ca_file=str(certificates.ca),
        environ={"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port},
    )


def verifying(certificates):
    """Return a server's context that requires client certificates."""
    context = certificates.server_context()
    context.load_verify_locations(certificates.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_kubeconfig_has_token_context_and_server(http_server, tmp_path):
    """Another context may have another user."""
    async with connected(http_server, tmp_path, {"token": "abc"}) as client:
        assert await sent_token(http_server, client) == "Bearer abc"
        path = str(tmp_path / "config")
        async with aclosing(await connect(kubeconfig=path, context="anonymous")) as other:
            assert await sent_token(http_server, other) is None


async def test_first_of_several_files_chooses_the_context(http_server, tmp_path):
    """As in kubectl: later files add entries."""
    async with connected(http_server, tmp_path, {"token": "abc"}):
        later = kubeconfig(tmp_path, "http://127.0.0.1:9", {"token": "late"}, name="later")
        later.write_text(
            later.read_text().replace("current-context: a", "current-context: anonymous")
        )
        paths = f"{tmp_path / 'config'}:{later}"
        async with aclosing(await connect(kubeconfig=paths)) as client:
            assert await sent_token(http_server, client) == "Bearer abc"


async def test_token_file_is_read_again(http_server, tmp_path, monkeypatch):
    """No 401 is needed; the file's line feed is not part of the token."""
    monkeypatch.setattr(_aiohttp, "RELOAD_S", 0.0)
    file = tmp_path / "token"
    file.write_text("one\n")
    async with connected(http_server, tmp_path, {"tokenFile": "token"}) as client:
        assert await sent_token(http_server, client) == "Bearer one"
        file.write_text("two\n")
        assert await sent_token(http_server, client) == "Bearer two"
        file.unlink()
        assert await sent_token(http_server, client) == "Bearer two"


async def test_changed_kubeconfig_is_read_after_a_401(http_server, tmp_path):
    """It has a new token, and the old one is refused."""
    http_server.handler = accepting("two")
    async with connected(http_server, tmp_path, {"token": "one"}) as client:
        with pytest.raises(UnauthorizedError):
            await client.raw(GET)
        kubeconfig(tmp_path, http_server.url, {"token": "two"})
        await client.raw(GET)


async def test_requests_refused_together_log_in_once(http_server, tmp_path):
    """A rotated token does not cause a login for each request that was sent with it."""
    async with connected(http_server, tmp_path, {"token": "one"}) as client:
        await client.raw(GET)
        kubeconfig(tmp_path, http_server.url, {"token": "two"})
        loads = []
        login = client.transport._login
        load = login.load

        async def counted():
            loads.append(1)
            await load()

        login.load = counted
        http_server.handler = accepting("two")
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(client.raw(GET))

    assert len(loads) == 1


@pytest.mark.parametrize("expires", [True, False])
async def test_exec_plugin_runs_again_when_its_token_expires_or_is_refused(
    expires, http_server, tmp_path, monkeypatch
):
    """It runs once for all requests before that."""
    monkeypatch.setattr(_aiohttp, "RELOAD_S", 0.0)
    when = '"expirationTimestamp": "2100-01-01T00:00:00Z",' if expires else ""
    script = tmp_path / "plugin.sh"
    script.write_text(f"""#!/bin/sh
echo x >> {tmp_path}/runs
n=$(wc -l < {tmp_path}/runs)
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
  "status": {{{when} "token": "run-'$n'"}}}}'
""")
    script.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}
    http_server.handler = accepting("run-1")
    async with connected(http_server, tmp_path, user) as client:
        await client.raw(GET)
        await client.raw(GET)
        http_server.handler = accepting("run-2")
        await client.raw(GET)

    assert (tmp_path / "runs").read_text() == "x\n" * 2


async def test_user_may_have_a_client_certificate(http_server, certificates, tmp_path):
    """Its requests have no token."""
    context = verifying(certificates)
    user = {
        "client-certificate": str(certificates.folder / "user.crt"),
        "client-key": str(certificates.folder / "user.key"),
    }
    authority = {"certificate-authority": str(certificates.ca)}
    async with connected(http_server, tmp_path, user, context, **authority) as client:
        assert await sent_token(http_server, client) is None
        await client.transport.refresh_credentials()
        await client.raw(GET)


@pytest.mark.parametrize("refused", [True, False])
async def test_renewed_client_certificate_is_used(
    refused, http_server, certificates, tmp_path, monkeypatch
):
    """It is used before the old one ends, and at the latest when that is refused.

    Open connections still have the old one: none of them is used again.
    """
    monkeypatch.setattr(_aiohttp, "RELOAD_S", 3600.0 if refused else 0.0)
    for name in ("first", "second"):
        certificates.issue(name, f"DNS:{name}")
    context = verifying(certificates)
    shown = []

    async def handler(exchange):
        subject = exchange._writer.get_extra_info("peercert")["subject"]
        shown.append(dict(pair for (pair,) in subject)["commonName"])
        await exchange.reply(200 if shown[-1] == good else 401)

    def exchange_files(name):
        for end in ("crt", "key"):
            fresh = tmp_path / f"new.{end}"
            fresh.write_bytes((certificates.folder / f"{name}.{end}").read_bytes())
            fresh.replace(tmp_path / f"user.{end}")

    http_server.handler = handler
    exchange_files("first")
    user = {
        "client-certificate": str(tmp_path / "user.crt"),
        "client-key": str(tmp_path / "user.key"),
    }
    authority = {"certificate-authority": str(certificates.ca)}
    async with connected(http_server, tmp_path, user, context, **authority) as client:
        good = "first"
        await client.raw(GET)
        await client.raw(GET)
        assert http_server.connections == 1
        exchange_files("second")
        good = "second"
        await client.raw(GET)
        async with client.transport.stream(GET) as stream:
            assert stream.status == 200

    assert shown == ["first"] * (3 if refused else 2) + ["second"] * 2


@pytest.mark.parametrize(
    ("cluster", "works"),
    [
        ({}, False),
        ({"insecure-skip-tls-verify": True}, True),
        ({"certificate-authority": "CA"}, False),
        ({"certificate-authority": "CA", "tls-server-name": "api.example"}, True),
    ],
)
async def test_certificates_are_verified_by_default(
    cluster, works, http_server, certificates, tmp_path
):
    """One for another name is accepted only if it is expected, or nothing is verified."""
    cluster = {
        key: str(certificates.ca) if value == "CA" else value for key, value in cluster.items()
    }
    async with http_server.running(context=certificates.server_context("other")):
        path = kubeconfig(tmp_path, http_server.url, {"token": "t"}, **cluster)
        async with aclosing(await AiohttpTransport.from_kubeconfig(path)) as transport:
            with nullcontext() if works else pytest.raises(ConnectFailedError):
                await transport.request(GET)

    assert len(http_server.requests) == int(works)


async def test_pod_uses_its_service_account(http_server, certificates, tmp_path):
    """After a 401 a new token is used immediately."""
    file = tmp_path / "token"
    file.write_text("one\n")
    async with http_server.running(context=certificates.server_context()):
        client = Client(in_cluster(http_server, certificates, file))
        assert await sent_token(http_server, client) == "Bearer one"
        http_server.handler = accepting("two")
        file.write_text("two\n")
        assert await sent_token(http_server, client) == "Bearer two"
        await client.aclose()


async def test_failing_login_is_reported(http_server, tmp_path):
    """A failing plugin ends the start; later the last token is used until it is refused."""
    script = tmp_path / "plugin.sh"
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}
    async with http_server.running():
        path = kubeconfig(tmp_path, http_server.url, user)
        with pytest.raises(ConnectFailedError, match="kubeconfig"):
            await connect(kubeconfig=str(path))
        kubeconfig(tmp_path, http_server.url, {"token": "one"})
        client = await connect(kubeconfig=str(path))
        path.unlink()

        await client.raw(GET)
        http_server.handler = accepting()
        with pytest.raises(ConnectFailedError, match="credentials"):
            await client.raw(GET)
        await client.aclose()


async def test_pod_without_files_is_refused_at_the_start(certificates, tmp_path):
    """Its token or its authority is missing."""
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    with pytest.raises(ConnectFailedError, match="service account"):
        AiohttpTransport.in_cluster(
            token_file=str(tmp_path / "none"), ca_file=str(certificates.ca), environ=environ
        )
    (tmp_path / "token").write_text("t")
    (tmp_path / "bad").write_text("no certificate")
    with pytest.raises(ConnectFailedError, match="TLS files"):
        AiohttpTransport.in_cluster(
            token_file=str(tmp_path / "token"), ca_file=str(tmp_path / "bad"), environ=environ
        )


async def test_token_file_may_be_missing_for_a_moment(http_server, certificates, tmp_path):
    """Requests use the last token."""
    file = tmp_path / "token"
    file.write_text("one")
    async with http_server.running(context=certificates.server_context()):
        transport = in_cluster(http_server, certificates, file)

        def missing(configuration):
            raise FileNotFoundError(file)

        transport._configuration.refresh_api_key_hook = missing
        assert await sent_token(http_server, Client(transport)) == "Bearer one"
        transport._configuration.api_key.clear()
        with pytest.raises(ConnectFailedError, match="credentials"):
            await transport.request(GET)
        await transport.aclose()


@pytest.mark.parametrize(
    ("kubeconfig_argument", "variables", "context", "expected"),
    [
        ("explicit", {"KUBECONFIG": "env"}, None, "explicit"),
        (None, {"KUBECONFIG": "env", "KUBERNETES_SERVICE_HOST": "h"}, None, "env"),
        (None, {"KUBECONFIG": "none:env"}, None, "env"),
        (None, {}, None, "home"),
        (None, {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}, "a", "home"),
        (None, {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}, None, None),
        (None, {"HOME": "/nowhere"}, None, None),
        ("missing", {}, None, None),
    ],
)
async def test_connect_finds_its_configuration(
    kubeconfig_argument, variables, context, expected, http_server, tmp_path
):
    """The argument precedes the variable, the variable the Pod, and the Pod the home folder."""
    (tmp_path / ".kube").mkdir()
    async with http_server.running():
        for token, folder, name in [
            ("explicit", tmp_path, "explicit"),
            ("env", tmp_path, "env"),
            ("home", tmp_path / ".kube", "config"),
        ]:
            kubeconfig(folder, http_server.url, {"token": token}, name=name)
        environ = {"HOME": str(tmp_path)} | variables
        if "KUBECONFIG" in environ:
            parts = environ["KUBECONFIG"].split(":")
            environ["KUBECONFIG"] = ":".join(str(tmp_path / part) for part in parts)
        argument = str(tmp_path / kubeconfig_argument) if kubeconfig_argument else None
        options = {"kubeconfig": argument, "context": context, "environ": environ}
        if expected is None:
            with pytest.raises(ConnectFailedError):
                await connect(**options)
        else:
            async with aclosing(await connect(**options)) as client:
                assert await sent_token(http_server, client) == f"Bearer {expected}"


@pytest.mark.parametrize(
    "content", ["", "[]", "{", "kind: Config", "current-context: x\ncontexts: []"]
)
async def test_broken_kubeconfig_is_a_failed_connection(content, tmp_path):
    """The loader's own exceptions are not raised."""
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConnectFailedError, match="kubeconfig"):
        await connect(kubeconfig=str(path))


# ---- imports --------------------------------------------------------------------------------


def python(code):
    """Run code in a new interpreter; return its output as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        timeout=patience.scaled(60),
    )
    return json.loads(done.stdout)


def test_agents_part_of_the_client_imports_nothing_heavy():
    """An agent's restart waits for each import."""
    loaded = python(
        "import sys, json, jobsetpy.client;"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    heavy = {"attrs", "attr", "cattrs", "aiohttp", "kubernetes_asyncio", "structlog", "yaml"}
    heavy |= {"prometheus_client", "urllib", "email", "uvloop", "yarl"}

    assert heavy.isdisjoint(loaded)


@pytest.mark.slow
def test_kubernetes_asyncio_is_imported_in_part_and_left_whole():
    """The models stay out of memory, and code that imports the package later gets all of it."""
    found = python("""
import json, sys
from jobsetpy.client._login import kubernetes_configuration
config, configuration = kubernetes_configuration()
before = [name for name in sys.modules if name.startswith("kubernetes_asyncio")]
import kubernetes_asyncio.client
print(json.dumps([before, kubernetes_asyncio.client.V1Pod.__name__,
    hasattr(kubernetes_asyncio, "watch"), config.__name__, configuration.__name__]))
""")

    assert found == [[], "V1Pod", True, "kubernetes_asyncio.config", "Configuration"]


def test_urllib3_is_imported_for_passwords_only():
    """A part of kubernetes_asyncio refers to it; it is imported with a password."""
    assert python("""
import json, sys
from jobsetpy.client._login import kubernetes_configuration
configuration = kubernetes_configuration()[1](username="me", password="mine")
before = "urllib3" in sys.modules
print(json.dumps([before, configuration.get_basic_auth_token()]))
""") == [False, "Basic bWU6bWluZQ=="]


@pytest.mark.slow
def test_another_build_of_kubernetes_asyncio_is_imported_whole():
    """The part cannot be imported separately from every build."""
    assert python("""
import json
from jobsetpy.client import _login
def broken():
    raise ImportError
_login._import_lean = broken
config, configuration = _login.kubernetes_configuration()
import kubernetes_asyncio
print(json.dumps(config is kubernetes_asyncio.config))
""")


@pytest.mark.slow
def test_whole_kubernetes_asyncio_is_used_if_it_is_imported():
    """A program that has imported it shares its Configuration."""
    assert python("""
import json, kubernetes_asyncio.client as k
from jobsetpy.client._login import kubernetes_configuration
print(json.dumps(kubernetes_configuration()[1] is k.Configuration))
""")


def test_public_names_are_sorted_and_exist():
    """Every exported name can be loaded, and only these are listed."""
    import jobsetpy.client as package

    assert "Client" in dir(package)
    assert dir(package) == sorted(set(dir(package)))
    assert all(getattr(package, name) is not None for name in dir(package))
    with pytest.raises(AttributeError):
        package.nothing  # noqa: B018
