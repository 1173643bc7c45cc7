"""What only the agent's transport does: watched files, in-cluster settings, a small pool."""

import asyncio
import shutil

import pytest

from jobsetpy.client import H11Transport, HttpRequest, _slim
from jobsetpy.errors import ConnectFailedError
from support import patience

GET = HttpRequest(method="GET", path="/x", timeout_s=patience.scaled(20))


async def test_the_token_file_is_looked_at_again(http_server, tmp_path, monkeypatch):
    """A renewed token is used without a 401, but not every request asks the file system."""
    file = tmp_path / "token"
    file.write_text("old")
    async with http_server.running():
        transport = H11Transport(http_server.url, token_file=str(file))
        await transport.request(GET)
        file.write_text("newer")
        await transport.request(GET)
        monkeypatch.setattr(_slim, "CHECK_FILES_S", 0.0)
        transport._token_check_at = 0.0
        await transport.request(GET)
        await transport.aclose()

    sent = [request.headers["authorization"] for request in http_server.requests]
    assert sent == ["Bearer old", "Bearer old", "Bearer newer"]


async def test_a_swapped_link_is_a_change(http_server, tmp_path, monkeypatch):
    """Kubernetes renews mounted files by pointing a link elsewhere."""
    monkeypatch.setattr(_slim, "CHECK_FILES_S", 0.0)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name)
    link = tmp_path / "data"
    link.symlink_to("one")
    async with http_server.running():
        transport = H11Transport(http_server.url, token_file=str(link / "token"))
        await transport.request(GET)
        (tmp_path / "new").symlink_to("two")
        (tmp_path / "new").replace(link)
        await transport.request(GET)
        await transport.aclose()

    sent = [request.headers["authorization"] for request in http_server.requests]
    assert sent == ["Bearer one", "Bearer two"]


async def test_a_token_file_that_vanishes_keeps_the_token(http_server, tmp_path, monkeypatch):
    """Between two states of a mount the file may be missing; the token in hand is still good."""
    monkeypatch.setattr(_slim, "CHECK_FILES_S", 0.0)
    file = tmp_path / "token"
    file.write_text("t")
    async with http_server.running():
        transport = H11Transport(http_server.url, token_file=str(file))
        await transport.request(GET)
        file.unlink()
        await transport.request(GET)
        await transport.aclose()

    assert [request.headers["authorization"] for request in http_server.requests] == [
        "Bearer t"
    ] * 2


async def test_a_renewed_authority_is_trusted(http_server, certificates, other_authority, tmp_path):
    """The CA file is read again before a new connection when it has changed."""
    ca = tmp_path / "ca.crt"
    shutil.copy(certificates.ca, ca)
    async with http_server.running(context=other_authority.server_context()):
        transport = H11Transport(http_server.url, ca_file=str(ca))
        with pytest.raises(ConnectFailedError):
            await transport.request(GET)
        shutil.copy(other_authority.ca, ca)
        assert (await transport.request(GET)).status == 200
        await transport.aclose()


async def test_an_authority_can_be_given_as_text(http_server, certificates):
    """No file is needed."""
    async with http_server.running(context=certificates.server_context()):
        transport = H11Transport(http_server.url, cadata=certificates.ca.read_text())
        assert (await transport.request(GET)).status == 200
        await transport.aclose()


async def test_another_name_can_be_expected(http_server, certificates):
    """The certificate's name may differ from the address, if one says so."""
    async with http_server.running(context=certificates.server_context("other")):
        transport = H11Transport(
            http_server.url, ca_file=str(certificates.ca), server_hostname="api.example"
        )
        assert (await transport.request(GET)).status == 200
        await transport.aclose()


async def test_a_missing_authority_file_is_a_failed_connection(http_server, certificates, tmp_path):
    """It may appear later; nothing was sent."""
    async with http_server.running(context=certificates.server_context()):
        transport = H11Transport(http_server.url, ca_file=str(tmp_path / "none"))
        with pytest.raises(ConnectFailedError):
            await transport.request(GET)
        await transport.aclose()


async def test_few_idle_connections_are_kept(http_server):
    """A burst of requests does not leave its connections behind."""
    arrived = asyncio.Barrier(10)

    async def handler(exchange):
        if len(http_server.requests) <= 10:
            await arrived.wait()
        await exchange.reply(200, b"x")

    http_server.handler = handler
    async with http_server.running():
        transport = H11Transport(http_server.url)
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(transport.request(GET))
        assert len(transport._idle) == _slim.MAX_IDLE
        assert len(transport._open) == _slim.MAX_IDLE
        await transport.request(GET)
        await transport.aclose()

    assert http_server.connections == 10


async def test_old_idle_connections_are_not_used(http_server, monkeypatch):
    """Rather a new connection than one that the server is about to close."""
    async with http_server.running():
        transport = H11Transport(http_server.url)
        await transport.request(GET)
        monkeypatch.setattr(_slim, "KEEPALIVE_S", 0.0)
        await transport.request(GET)
        await transport.aclose()

    assert http_server.connections == 2


async def test_an_answer_that_was_not_requested_spoils_the_connection(http_server):
    """Bytes on an idle connection (a 408 of a load balancer) are never taken for an answer."""
    go = asyncio.Event()

    async def handler(exchange):
        await exchange.reply(200, b"right")
        if len(http_server.requests) == 1:
            await go.wait()
            await exchange.reply(408, b"late")

    http_server.handler = handler
    async with http_server.running():
        transport = H11Transport(http_server.url)
        await transport.request(GET)
        (wire,) = transport._idle
        go.set()
        async with patience.timeout(5):
            while wire.reusable:  # noqa: ASYNC110 - an idle connection wakes nobody
                await asyncio.sleep(0.001)
        assert (await transport.request(GET)).body == b"right"
        await transport.aclose()

    assert http_server.connections == 2


async def test_a_read_is_repeated_once_on_a_fresh_connection(http_server):
    """A kept connection that closes before a byte of the answer costs a read nothing."""

    async def handler(exchange):
        if len(http_server.requests) == 2:
            exchange.close()
        else:
            await exchange.reply(200, b"ok")

    http_server.handler = handler
    async with http_server.running():
        transport = H11Transport(http_server.url)
        await transport.request(GET)
        assert (await transport.request(GET)).body == b"ok"
        await transport.aclose()

    assert len(http_server.requests) == 3


async def test_closing_ends_open_streams(http_server):
    """Nobody can hang on a transport that is closed."""

    async def handler(exchange):
        await exchange.head()
        await exchange.chunk(b"a\n")
        await exchange.gone.wait()

    http_server.handler = handler
    async with http_server.running():
        transport = H11Transport(http_server.url)
        async with transport.stream(GET) as stream:
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
def test_in_cluster_settings(environ, expected, monkeypatch):
    """Host and port are those of the kubernetes Service; IPv6 addresses get brackets."""
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    transport = H11Transport.in_cluster()

    assert transport._origin.authority == expected
    assert transport._origin.tls
    assert transport._token_file.path == _slim.TOKEN_FILE
    assert H11Transport.in_cluster(host="h", port=1)._origin.authority == "h:1"


def test_outside_of_a_cluster(monkeypatch):
    """The missing variable is named."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConnectFailedError, match="KUBERNETES_SERVICE_HOST"):
        H11Transport.in_cluster()
