"""The cluster that the plugin uses, and the errors if there is none."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest
import yaml

from jobsetpy.api.jobset import JobSet
from jobsetpy.client import AiohttpTransport
from jobsetpy.kubectl import main as plugin
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.kubeconfig import Options, target
from jobsetpy.testing import FakeApiServer
from support.jobsets import jobset_json


def config(server="https://a:6443", *, user=None, current="one", **cluster):
    """Return a kubeconfig with one context."""
    return {
        "current-context": current,
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
        ],
    }


EXEC = {"apiVersion": "client.authentication.k8s.io/v1"}


@pytest.fixture
def write(tmp_path):
    """Function that writes a kubeconfig and returns its path."""

    def one(data, name="config"):
        path = tmp_path / name
        path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
        return str(path)

    return one


class TestTarget:
    async def test_current_context_is_used(self, write):
        """It has server, namespace and user."""
        found = await target(Options(kubeconfig=write(config())), {})

        assert (found.server, found.namespace) == ("https://a:6443", "team")

    async def test_flags_override_the_context(self, write):
        """Server and namespace are theirs."""
        found = await target(
            Options(kubeconfig=write(config()), namespace="n", server="http://b"), {}
        )

        assert (found.server, found.namespace) == ("http://b", "n")

    async def test_given_token_replaces_the_user(self, write):
        """The user's exec plugin is not run."""
        path = write(config(user={"exec": EXEC | {"command": "no-such-thing"}}))
        found = await target(Options(kubeconfig=path, token="mine"), {})

        assert (found.transport._token, found.namespace) == ("mine", "team")

    async def test_long_command_renews_its_credentials(self, write):
        """It has the transport that can do so."""
        found = await target(Options(kubeconfig=write(config())), {}, long=True)
        await found.transport.aclose()

        assert isinstance(found.transport, AiohttpTransport)

    async def test_first_file_of_several_takes_precedence(self, write):
        """Files of $KUBECONFIG that do not exist are skipped."""
        second = config("https://second")
        second["clusters"].append({"name": "d", "cluster": {"server": "https://d"}})
        paths = [write(config("https://first"), "1"), "/nowhere", write(second, "2")]
        environ = {"KUBECONFIG": os.pathsep.join(paths)}

        assert (await target(Options(), environ)).server == "https://first"
        assert (await target(Options(cluster="d"), environ)).server == "https://d"

    async def test_files_are_next_to_the_kubeconfig(self, write, tmp_path):
        """A relative path begins in its folder; certificates are checked unless it says otherwise."""
        (tmp_path / "token").write_text("secret\n")
        data = config(user={"tokenFile": "token"}, **{"insecure-skip-tls-verify": True})
        transport = (await target(Options(kubeconfig=write(data)), {})).transport

        assert transport._token == "secret"
        assert not transport._context.check_hostname

    @pytest.mark.parametrize(
        ("data", "options", "message"),
        [
            (config(), {"context": "two"}, "object with name two in"),
            (config(), {"user": "x"}, "object with name x in"),
            (config(current="gone"), {}, "object with name gone in"),
            ("a: [", {}, "cannot be used: while parsing"),
            ("- 1", {}, "cannot be used"),
            (config(user={"auth-provider": {"name": "oidc"}}), {}, "oidc: missing configuration"),
            (
                config(**{"certificate-authority-data": "!"}),
                {},
                "cannot be used: cannot use TLS files",
            ),
            (config(**{"certificate-authority": "gone.pem"}), {}, "File does not exist"),
            (config(user={"exec": EXEC | {"command": "no-such-thing"}}), {}, "no-such-thing"),
            (config(user={"exec": EXEC | {"command": "false"}}), {}, "exec: process returned 1"),
        ],
    )
    async def test_invalid_configuration_is_an_error(self, write, data, options, message):
        """It is a message, not a traceback."""
        with pytest.raises(CommandError, match=message):
            await target(Options(kubeconfig=write(data), **options), {})

    async def test_error_without_a_cluster_says_where_it_was_searched(self, tmp_path):
        """There is no file."""
        with pytest.raises(CommandError, match="no cluster"):
            await target(Options(), {"HOME": str(tmp_path)})


async def test_plugin_runs_as_a_process(write):
    """It gets its token from an exec plugin, and uses a server of another process."""
    async with FakeApiServer(token="secret") as server:
        server.register(JobSet)
        server.create("namespaces", {"metadata": {"name": "team"}})
        body = jobset_json(namespace="team")
        del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
        server.create(JobSet, body)
        found = {**EXEC, "kind": "ExecCredential", "status": {"token": "secret"}}
        code = f"print({json.dumps(found)!r})"
        user = {"exec": {**EXEC, "command": sys.executable, "args": ["-c", code]}}
        path = write(config(server.url, user=user))
        out = await _run("--kubeconfig", path, "status", "test-js", "-o", "json")
        gone = await _run("status", "gone", "--kubeconfig", path)
    refused = await _run("status", "test-js", "--kubeconfig", path, "-s", "http://127.0.0.1:9")

    assert json.loads(out[1])["name"] == "test-js"
    missing = 'Error from server (NotFound): jobsets.jobset.x-k8s.io "gone" not found\n'
    assert (gone[0], gone[2]) == (1, missing)
    assert refused[0] == 1
    assert refused[2].startswith("The connection to the server http://127.0.0.1:9 was refused")


async def _run(*arguments):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "jobsetpy.kubectl.main", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def test_help_names_every_command(capsys):
    """It imports none of them."""
    with pytest.raises(SystemExit):
        plugin.main(["--help"])
    text = capsys.readouterr().out

    assert all(name in text for name in plugin.COMMANDS)
