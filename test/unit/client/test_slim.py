"""Features of the agent's transport only: watched files, in-cluster settings, a small pool."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from jobsetpy.client import H11Transport, HttpRequest, _slim
from jobsetpy.errors import ConnectFailedError
from support import patience

GET = HttpRequest(method="GET", path="/x", timeout_s=patience.scaled(20))


@asynccontextmanager
async def slim(server, handler=None, context=None, **options):
    """Run a server and connect the agent's transport to it."""
    server.handler = handler or server.handler
    async with server.running(context=context):
        transport = H11Transport(server.url, **options)
        yield transport
        await transport.aclose()


async def test_token_file_is_read_again_after_an_interval(http_server, tmp_path, monkeypatch):
    """A renewed token is used without a 401, and not every request reads the file."""
    file = tmp_path / "token"
    file.write_text("old")
    async with slim(http_server, token_file=str(file)) as transport:
        await transport.request(GET)
        file.write_text("newer")
        await transport.request(GET)
        monkeypatch.setattr(_slim, "CHECK_FILES_S", 0.0)
        transport._token_check_at = 0.0
        await transport.request(GET)

    sent = [request.headers["authorization"] for request in http_server.requests]
    assert sent == ["Bearer old", "Bearer old", "Bearer newer"]


async def test_replaced_link_is_a_change(http_server, tmp_path, monkeypatch):
    """Kubernetes renews mounted files by replacing a link."""
    monkeypatch.setattr(_slim, "CHECK_FILES_S", 0.0)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name)
    link = tmp_path / "data"
    link.symlink_to("one")
    async with slim(http_server, token_file=str(link / "token")) as transport:
        await transport.request(GET)
        (tmp_path / "new").symlink_to("two")
        (tmp_path / "new").replace(link)
        await transport.request(GET)

    sent = [request.headers["authorization"] for request in http_server.requests]
    assert sent == ["Bearer one", "Bearer two"]


async def test_last_token_is_used_when_its_file_is_missing(http_server, tmp_path, monkeypatch):
    """The file may be missing for a moment while a mount is replaced."""
    monkeypatch.setattr(_slim, "CHECK_FILES_S", 0.0)
    file = tmp_path / "token"
    file.write_text("t")
    async with slim(http_server, token_file=str(file)) as transport:
        await transport.request(GET)
        file.unlink()
        await transport.request(GET)

    sent = [request.headers["authorization"] for request in http_server.requests]
    assert sent == ["Bearer t"] * 2


async def test_authority_may_be_given_as_text(http_server, certificates):
    """No file is needed."""
    context, ca = certificates.server_context(), certificates.ca.read_text()
    async with slim(http_server, context=context, cadata=ca) as transport:
        assert (await transport.request(GET)).status == 200


async def test_another_name_may_be_expected(http_server, certificates):
    """The certificate's name may differ from the address."""
    context = certificates.server_context("other")
    options = {"ca_file": str(certificates.ca), "server_hostname": "api.example"}
    async with slim(http_server, context=context, **options) as transport:
        assert (await transport.request(GET)).status == 200


async def test_missing_authority_file_is_a_failed_connection(http_server, certificates, tmp_path):
    """Nothing was sent, and the file may appear later."""
    context = certificates.server_context()
    async with slim(http_server, context=context, ca_file=str(tmp_path / "none")) as transport:
        with pytest.raises(ConnectFailedError):
            await transport.request(GET)


async def test_few_idle_connections_are_kept(http_server):
    """The connections of a burst of requests are closed."""
    arrived = asyncio.Barrier(10)

    async def handler(exchange):
        if len(http_server.requests) <= 10:
            await arrived.wait()
        await exchange.reply(200, b"x")

    async with slim(http_server, handler) as transport:
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(transport.request(GET))
        assert len(transport._idle) == _slim.MAX_IDLE
        assert len(transport._open) == _slim.MAX_IDLE
        await transport.request(GET)

    assert http_server.connections == 10


async def test_old_idle_connections_are_not_used(http_server, monkeypatch):
    """The server may be about to close them."""
    async with slim(http_server) as transport:
        await transport.request(GET)
        monkeypatch.setattr(_slim, "KEEPALIVE_S", 0.0)
        await transport.request(GET)

    assert http_server.connections == 2


async def test_connection_with_an_unrequested_answer_is_not_used(http_server):
    """Bytes on an idle connection, such as a 408 of a load balancer, are not an answer."""
    go = asyncio.Event()

    async def handler(exchange):
        await exchange.reply(200, b"right")
        if len(http_server.requests) == 1:
            await go.wait()
            await exchange.reply(408, b"late")

    async with slim(http_server, handler) as transport:
        await transport.request(GET)
        (wire,) = transport._idle
        go.set()
        async with patience.timeout(5):
            while wire.reusable:  # noqa: ASYNC110 - an idle connection notifies no task
                await asyncio.sleep(0.001)
        assert (await transport.request(GET)).body == b"right"

    assert http_server.connections == 2


async def test_closing_ends_open_streams(http_server):
    """A closed transport blocks no reader."""

    async def handler(exchange):
        await exchange.head()
        await exchange.chunk(b"a\n")
        await exchange.gone.wait()

    async with slim(http_server, handler) as transport, transport.stream(GET) as stream:
        await stream.read()
        await transport.aclose()
        with pytest.raises(Exception, match="broke"):
            await stream.read()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"},
            "10.0.0.1:6443",
        ),
        ({"KUBERNETES_SERVICE_HOST": "fd00::1"}, "[fd00::1]:443"),
    ],
)
def test_in_cluster_settings_are_those_of_the_kubernetes_service(environ, expected, monkeypatch):
    """IPv6 addresses get brackets."""
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    transport = H11Transport.in_cluster()

    assert transport._origin.authority == expected
    assert transport._origin.tls
    assert transport._token_file.path == _slim.TOKEN_FILE
    assert H11Transport.in_cluster(host="h", port=1)._origin.authority == "h:1"


def test_error_outside_of_a_cluster_names_the_variable(monkeypatch):
    """There is no address of an API server."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConnectFailedError, match="KUBERNETES_SERVICE_HOST"):
        H11Transport.in_cluster()
