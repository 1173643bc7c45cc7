"""Servers, certificates and a scripted transport for the client's tests."""

import asyncio
import shutil
import ssl
import subprocess
from contextlib import asynccontextmanager

import pytest

from jobsetpy.client import AiohttpTransport, H11Transport, HttpResponse
from jobsetpy.errors import ApiTimeoutError
from support.logins import StaticLogin


class Request:
    """One request as the server got it."""

    def __init__(self, method, target, headers, body, connection):
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.connection = connection


class Exchange:
    """Answer of a handler to one request: any bytes, in any pieces, or nothing."""

    def __init__(self, request, writer, gone):
        self.request = request
        self.gone = gone
        self._writer = writer

    async def send(self, data):
        self._writer.write(data)
        await self._writer.drain()

    async def reply(self, status=200, body=b"", headers=()):
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def head(self, status=200, headers=("Transfer-Encoding: chunked",)):
        await self.send("\r\n".join([f"HTTP/1.1 {status} X", *headers]).encode() + b"\r\n\r\n")

    async def chunk(self, data):
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def close(self):
        self._writer.close()

    def cut(self):
        self._writer.transport.abort()


class HttpServer:
    """An HTTP/1.1 server that sends exactly what its handler writes."""

    def __init__(self):
        self.requests = []
        self.connections = 0
        self.lost = 0
        self.handler = self._hello
        self.greeting = b""
        self._writers = set()
        self._tasks = set()

    @staticmethod
    async def _hello(exchange):
        await exchange.reply(200, b"hello")

    @asynccontextmanager
    async def running(self, *, context=None, host="127.0.0.1"):
        server = await asyncio.start_server(self._serve, host, 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if context else 'http'}://{shown}:{port}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()
            await asyncio.sleep(0)

    async def _serve(self, reader, writer):
        self.connections += 1
        number = self.connections
        self._writers.add(writer)
        task = asyncio.current_task()
        self._tasks.add(task)
        gone = asyncio.Event()
        writer.write(self.greeting)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, target, _ = head[0].split(" ")
                pairs = (line.split(": ", 1) for line in head[1:] if line)
                headers = {name.lower(): value for name, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                request = Request(method, target, headers, body, number)
                self.requests.append(request)
                answer = asyncio.create_task(self.handler(Exchange(request, writer, gone)))
                watcher = asyncio.create_task(self._watch(reader, gone))
                self._tasks |= {answer, watcher}
                await answer
                watcher.cancel()
                await asyncio.gather(watcher, return_exceptions=True)
                if writer.is_closing() or gone.is_set():
                    break
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass
        finally:
            self.lost += 1
            gone.set()
            writer.transport.abort()

    @staticmethod
    async def _watch(reader, gone):
        """Notify a handler that its client has disconnected, without reading any of its data."""
        try:
            while not reader.at_eof() and reader.exception() is None:
                await reader._wait_for_data("watch")
        finally:
            if reader.at_eof() or reader.exception() is not None:
                gone.set()


@pytest.fixture
def http_server():
    """A server, to be started with ``async with http_server.running():``."""
    return HttpServer()


class Certificates:
    """A certificate authority and the certificates that it has signed, as files."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.ca = folder / "ca.crt"
        self._ssl("req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=ca", "-newkey", "ec",
                  "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", "ca.key", "-out", "ca.crt")  # fmt: skip

    def _ssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def issue(self, name, alternatives):
        """Return certificate and key for a name; ``alternatives`` as openssl writes them."""
        (self.folder / f"{name}.ext").write_text(
            f"subjectAltName={alternatives}\nauthorityKeyIdentifier=keyid\n"
        )
        self._ssl("req", "-nodes", "-subj", f"/CN={name}", "-newkey", "ec", "-pkeyopt",
                  "ec_paramgen_curve:prime256v1", "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
        self._ssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                  "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.crt")  # fmt: skip
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def server_context(self, name="server"):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        return context


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """An authority with the certificates ``server`` (loopback) and ``other`` (another name)."""
    if shutil.which("openssl") is None:
        pytest.fail("the openssl command is needed to make test certificates")
    made = Certificates(tmp_path_factory.mktemp("pki") / "a")
    made.issue("server", "IP:127.0.0.1,IP:::1,DNS:localhost")
    made.issue("other", "DNS:api.example")
    made.issue("user", "DNS:user")
    return made


@pytest.fixture(scope="session")
def other_authority(tmp_path_factory):
    """Another authority, which no client trusts."""
    made = Certificates(tmp_path_factory.mktemp("pki") / "b")
    made.issue("server", "IP:127.0.0.1,IP:::1,DNS:localhost")
    return made


def slim_transport(url, *, ca=None, token=None, token_file=None):
    """Return the agent's transport."""
    return H11Transport(
        url,
        ca_file=str(ca) if ca else None,
        token=token,
        token_file=str(token_file) if token_file else None,
    )


class _FileLogin(StaticLogin):
    """A minimal login by token file."""

    def __init__(self, token_file, **options):
        super().__init__(**options)
        self._token_file = token_file

    async def load(self):
        self.configuration.api_key["BearerToken"] = "Bearer " + self._token_file.read_text()

    async def renew(self):
        await self.load()


def aiohttp_transport(url, *, ca=None, token=None, token_file=None):
    """Return the manager's transport."""
    options = {"host": url, "ssl_ca_cert": str(ca) if ca else None}
    if token_file:
        return AiohttpTransport(_FileLogin(token_file, **options))
    login = StaticLogin(**options)
    if token:
        login.configuration.api_key["BearerToken"] = f"Bearer {token}"
    return AiohttpTransport(login)


@pytest.fixture(params=[slim_transport, aiohttp_transport], ids=["slim", "aiohttp"])
def transport_to(request):
    """Function that makes a transport; a test with it runs once on each kind."""
    made = []

    def make(url, **options):
        transport = request.param(url, **options)
        made.append(transport)
        return transport

    return make


@pytest.fixture
def connected(http_server, transport_to):
    """Context with a transport to a running server; options are those of ``transport_to``."""

    @asynccontextmanager
    async def connect(handler=None, *, context=None, host="127.0.0.1", **options):
        http_server.handler = handler or http_server.handler
        async with http_server.running(context=context, host=host):
            transport = transport_to(http_server.url, **options)
            yield transport
            await transport.aclose()

    return connect


class ScriptedTransport:
    """Transport with a list of answers: a response, an exception, or a delay and one of these."""

    def __init__(self, *script):
        self.script = list(script)
        self.requests = []
        self.times = []
        self.refreshes = 0
        self.closed = False

    async def request(self, request):
        self.requests.append(request)
        loop = asyncio.get_running_loop()
        self.times.append(loop.time())
        answer = self.script.pop(0)
        if isinstance(answer, tuple):
            delay, answer = answer
            if delay >= request.timeout_s:
                await asyncio.sleep(request.timeout_s)
                raise ApiTimeoutError("scripted")
            await asyncio.sleep(delay)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @asynccontextmanager
    async def stream(self, request):
        answer = await self.request(request)
        if isinstance(answer, HttpResponse):
            answer = ScriptedStream(answer.status, answer.headers, [answer.body])
        try:
            yield answer
        finally:
            answer.closed = True

    async def refresh_credentials(self):
        self.refreshes += 1

    async def aclose(self):
        self.closed = True


class ScriptedStream:
    """A body in given pieces; an exception among them is raised."""

    def __init__(self, status, headers, pieces):
        self.status = status
        self.headers = headers
        self.pieces = list(pieces)
        self.closed = False

    async def read(self):
        if not self.pieces:
            return b""
        piece = self.pieces.pop(0)
        if isinstance(piece, BaseException):
            raise piece
        return piece


@pytest.fixture
def scripted():
    """The class ``ScriptedTransport``."""
    return ScriptedTransport


@pytest.fixture
def scripted_stream():
    """The class ``ScriptedStream``."""
    return ScriptedStream


class Observer:
    """Record of the requests that a client reports."""

    def __init__(self):
        self.seen = []

    def on_response(self, verb, resource, status, seconds):
        self.seen.append((verb, resource, status, round(seconds, 3)))

    def on_throttled(self, seconds):
        self.seen.append(("throttled", round(seconds, 1)))


@pytest.fixture
def observer():
    """An observer without requests."""
    return Observer()
