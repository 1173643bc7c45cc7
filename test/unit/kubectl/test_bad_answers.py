"""Every command with what it cannot use: a sentence and an exit code, never a traceback."""

from __future__ import annotations

import json

import pytest
import yaml

from jobsetpy.api.jobset import JobSet
from jobsetpy.client import HttpResponse
from jobsetpy.errors import ConnectFailedError
from jobsetpy.kubectl import cluster
from jobsetpy.kubectl import main as plugin
from jobsetpy.kubectl.kubeconfig import Target
from jobsetpy.testing import MemoryTransport, World
from jobsetpy.testing.jobsets import jobset_json

NAMED = ("status", "restarts", "why", "restart", "suspend", "resume")
READING = ("status", "restarts", "why")
NOT_FOUND = 'Error from server (NotFound): jobsets.jobset.x-k8s.io "gone" not found'


@pytest.fixture
def world():
    """A cluster in memory."""
    made = World()
    made.register(JobSet)
    return made


@pytest.fixture
def kubectl(world, monkeypatch, capsys):
    """The whole plugin against a transport: exit code, output and errors."""

    def run(*arguments, transport=None):
        where = Target(
            transport or MemoryTransport(world._dispatcher), "https://test:6443", "default"
        )
        monkeypatch.setattr(cluster, "target", lambda *_: where)
        code = plugin.main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err.strip()

    return run


def stored(world, **status):
    """A JobSet whose controller's definition knows only what the Go project's does."""
    body = jobset_json(failurePolicy={"maxRestarts": 3})
    del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
    world.create(JobSet, body)
    if status:
        world.patch(JobSet, "test-js", {"status": status}, subresource="status")


class Answers:
    """A server that answers the same to everything."""

    def __init__(self, status, body):
        self.status, self.body = status, body

    async def request(self, request):
        """The answer."""
        if self.status == 0:
            msg = "connection refused"
            raise ConnectFailedError(msg)
        return HttpResponse(self.status, {}, self.body)

    async def aclose(self):
        """Nothing to close."""


STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}


def refusal(code, reason, message):
    """A server that refuses everything."""
    body = {**STATUS, "code": code, "reason": reason, "message": message}
    return Answers(code, json.dumps(body).encode())


@pytest.mark.parametrize("command", NAMED)
class TestCommandsAboutAJobSet:
    def test_it_does_not_exist(self, kubectl, command):
        """What kubectl says."""
        assert kubectl(command, "gone") == (1, "", NOT_FOUND)

    def test_no_name(self, kubectl, command, capsys):
        """The usage, with the exit code of a wrong call."""
        with pytest.raises(SystemExit) as ended:
            kubectl(command)
        assert ended.value.code == 2
        assert "NAME" in capsys.readouterr().err

    def test_no_rights(self, kubectl, command):
        """The server's words."""
        text = 'jobsets.jobset.x-k8s.io "a" is forbidden: User "eve" cannot get resource'
        found = kubectl(command, "a", transport=refusal(403, "Forbidden", text))
        assert (1, "", f"Error from server (Forbidden): {text}") == found

    @pytest.mark.parametrize(
        ("transport", "text"),
        [
            (refusal(401, "Unauthorized", "Unauthorized"), "(Unauthorized): Unauthorized"),
            (refusal(500, "InternalError", "etcd is away"), "(InternalError): etcd is away"),
            (refusal(503, "ServiceUnavailable", "later"), "(ServiceUnavailable): later"),
            (Answers(404, b"404 page not found\n"), 'have a resource type "jobsets"'),
            (Answers(502, b"<html>bad gateway</html>"), "bad gateway"),
            (Answers(200, b"<html>log in</html>"), "is it an API server?"),
            (Answers(200, b"[]"), "is it an API server?"),
            (Answers(200, b'{"kind": "Other"}'), "is not as this release knows it"),
            (Answers(200, b'{"metadata": {"name": "a"}, "spec": "v2"}'), "error: "),
            (Answers(200, b'{"metadata": null, "spec": {"replicatedJobs": 3}}'), "error: "),
            (Answers(0, b""), "The connection to the server https://test:6443 was refused"),
        ],
    )
    def test_another_server(self, kubectl, command, transport, text):
        """Of another version, none of ours, or none at all: the sentence says which."""
        code, out, err = kubectl(command, "a", transport=transport)
        known = command in {"restarts", "suspend", "resume"} and transport.status == 200
        if known and code == 0:
            return  # these need no field that is missing
        assert (code, out) == (1, "")
        assert text in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize("resource", ["jobs", "pods"])
@pytest.mark.parametrize("command", ["status", "why"])
def test_rights_to_some_of_it_only(kubectl, world, command, resource):
    """Who may read the JobSet but not its pods is told what is forbidden."""
    stored(world)
    world.faults.status(403, resource=resource)
    code, out, err = kubectl(command, "test-js")

    assert (code, out) == (1, "")
    assert err.startswith("Error from server (Forbidden): ")


@pytest.mark.parametrize("command", NAMED)
@pytest.mark.parametrize("status", [{}, {"restarts": 4, "restartsCountTowardsMax": 4}])
def test_a_definition_without_the_new_fields(kubectl, world, command, status):
    """Another controller's status is told as far as it goes."""
    stored(world, **status)
    code, out, err = kubectl(command, "test-js")

    if command == "restart":
        assert (code, err) == (1, 'error: jobset "test-js" has no jobs to restart')
    else:
        assert (code, err) == (0, "")
        assert out


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("command", READING)
def test_nothing_to_tell_is_still_an_object(kubectl, world, command, form):
    """Programs get something that they can parse, whatever is missing."""
    stored(world)
    code, out, _ = kubectl(command, "test-js", "-o", form)

    assert code == 0
    assert yaml.safe_load(out) is not None


class TestDoctor:
    def test_no_rights_at_all(self, kubectl):
        """Each check says that it could not look; that alone is no fault of the cluster's."""
        code, out, err = kubectl("doctor", transport=refusal(403, "Forbidden", "no"))
        assert (code, err) == (0, "")
        assert "no right to read it" in out

    @pytest.mark.parametrize(
        ("transport", "text"),
        [
            (Answers(0, b""), "The connection to the server"),
            (Answers(200, b"<html>log in</html>"), "is it an API server?"),
        ],
    )
    def test_no_server(self, kubectl, transport, text):
        """A sentence."""
        code, out, err = kubectl("doctor", transport=transport)
        assert (code, out) == (1, "")
        assert text in err


GOOD = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: NAME}
spec: {replicatedJobs: [{name: w, template: {spec: {template: {spec: {restartPolicy: Never,
  containers: [{name: c, image: i}]}}}}}]}
"""


class TestFiles:
    @pytest.mark.parametrize(
        ("broken", "text"),
        [
            ("a: [1,\n", "error parsing"),
            ("just words\n", "is no Kubernetes object"),
            ("a: &a [*a]\n", "document 2"),
            ("\x00\n", "error parsing"),
            (GOOD.replace("{name: NAME}", "3"), "error: "),
            (GOOD.replace("{name: NAME}", ""), "name"),
            (GOOD.partition("spec:")[0] + "spec: 3\n", "spec"),
            ("kind: List\napiVersion: v1\nitems: [3, null]\n", "is no Kubernetes object"),
        ],
    )
    def test_one_broken_document_of_three(self, kubectl, tmp_path, broken, text):
        """The others are judged; the broken one is named; the exit code is 1."""
        file = tmp_path / "three.yaml"
        documents = [GOOD.replace("NAME", "one"), broken, GOOD.replace("NAME", "three")]
        file.write_text("---\n".join(documents))
        code, out, err = kubectl("lint", str(file))

        lines = out.splitlines()
        assert (code, err) == (1, "")
        assert any("document 1: jobset/one: ok" in line for line in lines), out
        assert any("document 3: jobset/three: ok" in line for line in lines), out
        assert any("document 2" in line and text in line for line in lines), out

    @pytest.mark.parametrize("command", ["lint", "simulate"])
    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("nowhere.yaml", 'the path "'),
            ("empty.yaml", "JobSet"),
            ("other.yaml", "JobSet"),
            ("binary.yaml", "cannot be read"),
        ],
    )
    def test_no_manifest(self, kubectl, tmp_path, command, name, text):
        """Missing, empty, of something else, or no text at all."""
        (tmp_path / "empty.yaml").write_text("")
        (tmp_path / "other.yaml").write_text("apiVersion: v1\nkind: Pod\n")
        (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
        code, out, err = kubectl(command, str(tmp_path / name))

        assert code == 1
        assert text in out + err

    @pytest.mark.parametrize("words", ["", "x@", "x@-1s", "x@1s:exit=a"])
    def test_faults_that_cannot_be_played(self, kubectl, tmp_path, words):
        """They are refused by their words."""
        file = tmp_path / "one.yaml"
        file.write_text(GOOD.replace("NAME", "one"))
        code, _, err = kubectl("simulate", str(file), "--fail", words)

        assert code == 1
        assert err.startswith("error: ")
