"""Every command with invalid input: a message and an exit code, never a traceback."""

from __future__ import annotations

import json
from unittest.mock import AsyncMock

import pytest
import yaml

from jobsetpy.api.jobset import JobSet
from jobsetpy.client import HttpResponse
from jobsetpy.errors import ConnectFailedError
from jobsetpy.kubectl import cluster
from jobsetpy.kubectl import main as plugin
from jobsetpy.kubectl.kubeconfig import Target
from jobsetpy.testing import MemoryTransport, World
from support.jobsets import jobset_json

NAMED = ("status", "restarts", "restart", "suspend", "resume")
READING = ("status", "restarts")
NOT_FOUND = 'Error from server (NotFound): jobsets.jobset.x-k8s.io "gone" not found'


@pytest.fixture
def world():
    """A cluster in memory."""
    made = World()
    made.register(JobSet)
    return made


@pytest.fixture
def kubectl(world, monkeypatch, capsys):
    """Function that runs the whole plugin; it returns exit code, output and errors."""

    def run(*arguments, transport=None):
        where = Target(
            transport or MemoryTransport(world._dispatcher), "https://test:6443", "default"
        )
        monkeypatch.setattr(cluster, "target", AsyncMock(return_value=where))
        code = plugin.main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err.strip()

    return run


def stored(world, **status):
    """Create a JobSet with a status that the Go project's CRD has, too."""
    body = jobset_json(failurePolicy={"maxRestarts": 3})
    del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
    world.create(JobSet, body)
    if status:
        world.patch(JobSet, "test-js", {"status": status}, subresource="status")


class Answers:
    """A server with the same answer to every request."""

    def __init__(self, status, body):
        self.status, self.body = status, body

    async def request(self, request):
        """Return the answer."""
        if self.status == 0:
            msg = "connection refused"
            raise ConnectFailedError(msg)
        return HttpResponse(self.status, {}, self.body)

    async def aclose(self):
        """Do nothing."""


STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}


def refusal(code, reason, message):
    """Return a server that refuses every request."""
    body = {**STATUS, "code": code, "reason": reason, "message": message}
    return Answers(code, json.dumps(body).encode())


@pytest.mark.parametrize("command", NAMED)
class TestCommandsAboutAJobSet:
    def test_missing_jobset_is_reported_like_kubectl(self, kubectl, command):
        """The exit code is 1."""
        assert kubectl(command, "gone") == (1, "", NOT_FOUND)

    def test_missing_name_is_a_usage_error(self, kubectl, command, capsys):
        """The exit code is 2."""
        with pytest.raises(SystemExit) as ended:
            kubectl(command)
        assert ended.value.code == 2
        assert "NAME" in capsys.readouterr().err

    def test_missing_right_is_reported_as_the_server_says(self, kubectl, command):
        """The message names user, verb and resource."""
        text = 'jobsets.jobset.x-k8s.io "a" is forbidden: User "eve" cannot get resource'
        found = kubectl(command, "a", transport=refusal(403, "Forbidden", text))
        assert found == (1, "", f"Error from server (Forbidden): {text}")

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
    def test_unusable_server_is_reported(self, kubectl, command, transport, text):
        """It has another version, is no API server, or does not answer: the message says which."""
        code, out, err = kubectl(command, "a", transport=transport)
        known = command in {"restarts", "suspend", "resume"} and transport.status == 200
        if known and code == 0:
            return  # these use no missing field
        assert (code, out) == (1, "")
        assert text in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize("resource", ["jobs", "pods"])
@pytest.mark.parametrize("command", ["status"])
def test_forbidden_resource_is_named(kubectl, world, command, resource):
    """The user may read the JobSet, but not all that belongs to it."""
    stored(world)
    world.faults.status(403, resource=resource)
    code, out, err = kubectl(command, "test-js")

    assert (code, out) == (1, "")
    assert err.startswith("Error from server (Forbidden): ")


@pytest.mark.parametrize("command", NAMED)
@pytest.mark.parametrize("status", [{}, {"restarts": 4, "restartsCountTowardsMax": 4}])
def test_status_without_new_fields_is_shown(kubectl, world, command, status):
    """Another controller may have written it."""
    stored(world, **status)
    code, out, err = kubectl(command, "test-js")

    if command == "restart":
        assert (code, err) == (1, 'error: jobset "test-js" has no jobs to restart')
    else:
        assert (code, err) == (0, "")
        assert out


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("command", READING)
def test_output_for_programs_is_an_object_when_there_is_nothing_to_show(
    kubectl, world, command, form
):
    """It can always be parsed."""
    stored(world)
    code, out, _ = kubectl(command, "test-js", "-o", form)

    assert code == 0
    assert yaml.safe_load(out) is not None


class TestDoctor:
    def test_checks_without_rights_are_no_errors(self, kubectl):
        """Each of them says that it could not read its objects."""
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
    def test_unusable_server_is_reported(self, kubectl, transport, text):
        """The exit code is 1."""
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
    def test_broken_document_is_named_among_others(self, kubectl, tmp_path, broken, text):
        """The others are checked, and the exit code is 1."""
        file = tmp_path / "three.yaml"
        documents = [GOOD.replace("NAME", "one"), broken, GOOD.replace("NAME", "three")]
        file.write_text("---\n".join(documents))
        code, out, err = kubectl("lint", str(file))

        lines = out.splitlines()
        assert (code, err) == (1, "")
        assert any("document 1: jobset/one: ok" in line for line in lines), out
        assert any("document 3: jobset/three: ok" in line for line in lines), out
        assert any("three.yaml, document 2" in line and text in line for line in lines), out

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("nowhere.yaml", 'the path "'),
            ("empty.yaml", "JobSet"),
            ("other.yaml", "JobSet"),
            ("binary.yaml", "cannot be read"),
        ],
    )
    def test_file_without_a_jobset_is_an_error(self, kubectl, tmp_path, name, text):
        """It is missing, empty, of something else, or binary."""
        (tmp_path / "empty.yaml").write_text("")
        (tmp_path / "other.yaml").write_text("apiVersion: v1\nkind: Pod\n")
        (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
        code, out, err = kubectl("lint", str(tmp_path / name))

        assert code == 1
        assert text in out + err
