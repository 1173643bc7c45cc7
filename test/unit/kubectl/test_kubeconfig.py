"""Which cluster the plugin talks to, and how it says that it cannot."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest
import yaml

from jobsetpy.api.jobset import JobSet
from jobsetpy.kubectl import main as plugin
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.kubeconfig import Options, target
from jobsetpy.testing import FakeApiServer
from jobsetpy.testing.jobsets import jobset_json


def config(server="https://a:6443", *, user=None, current="one", **cluster):
    """A kubeconfig with one context."""
    return {
        "current-context": current,
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
        ],
    }


@pytest.fixture
def write(tmp_path):
    """Writes a kubeconfig and gives its path."""

    def one(data, name="config"):
        path = tmp_path / name
        path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
        return str(path)

    return one


class TestTarget:
    async def test_the_current_context(self, write):
        """Server, namespace and user are its."""
        found = target(Options(kubeconfig=write(config())), {})

        assert (found.server, found.namespace) == ("https://a:6443", "team")

    async def test_flags_win(self, write):
        """Over what the context says."""
        found = target(Options(kubeconfig=write(config()), namespace="n", server="http://b"), {})

        assert (found.server, found.namespace) == ("http://b", "n")

    async def test_the_first_file_wins(self, write):
        """Of several in $KUBECONFIG; those that are not there are passed over."""
        second = config("https://second")
        second["clusters"].append({"name": "d", "cluster": {"server": "https://d"}})
        paths = [write(config("https://first"), "1"), "/nowhere", write(second, "2")]
        environ = {"KUBECONFIG": os.pathsep.join(paths)}

        assert target(Options(), environ).server == "https://first"
        assert target(Options(cluster="d"), environ).server == "https://d"

    @pytest.mark.parametrize(
        ("data", "options", "message"),
        [
            (config(), {"context": "two"}, 'context "two" does not exist'),
            (config(), {"user": "x"}, 'user "x" does not exist'),
            (config(current="gone"), {}, 'context "gone" does not exist'),
            ("a: [", {}, "error loading config file"),
            ("- 1", {}, "it is no kubeconfig"),
            (config(user={"auth-provider": {"name": "gcp"}}), {}, "auth-provider is not supported"),
            (config(**{"certificate-authority-data": "!"}), {}, "certificate-authority-data"),
            (config(**{"certificate-authority": "gone.pem"}), {}, "cannot be used"),
            (config(user={"exec": {"command": "no-such-thing"}}), {}, "no-such-thing not found"),
            (config(user={"exec": {"command": "false"}}), {}, "getting credentials"),
        ],
    )
    def test_what_cannot_be_used(self, write, data, options, message):
        """A sentence, never a traceback."""
        with pytest.raises(CommandError, match=message):
            target(Options(kubeconfig=write(data), **options), {})

    def test_no_cluster_at_all(self, tmp_path):
        """Where it was looked is said."""
        with pytest.raises(CommandError, match="no cluster"):
            target(Options(), {"HOME": str(tmp_path)})


async def test_the_plugin_as_a_process(write):
    """With an exec plugin for the token, on a server of another process."""
    async with FakeApiServer(token="secret") as server:
        server.register(JobSet)
        server.create("namespaces", {"metadata": {"name": "team"}})
        body = jobset_json(namespace="team")
        del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
        server.create(JobSet, body)
        answer = {"status": {"token": "secret"}}
        code = f"import json; print(json.dumps({answer!r}))"
        user = {"exec": {"command": sys.executable, "args": ["-c", code]}}
        path = write(config(server.url, user=user))
        out = await _run("--kubeconfig", path, "status", "test-js", "-o", "json")
        gone = await _run("status", "gone", "--kubeconfig", path)
    refused = await _run("status", "test-js", "--kubeconfig", path, "-s", "http://127.0.0.1:9")

    assert json.loads(out[1])["name"] == "test-js"
    assert (
        gone[0],
        gone[2],
    ) == (1, 'Error from server (NotFound): jobsets.jobset.x-k8s.io "gone" not found\n')
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
    """Without importing any of them."""
    with pytest.raises(SystemExit):
        plugin.main(["--help"])
    text = capsys.readouterr().out

    assert all(name in text for name in plugin.COMMANDS)
