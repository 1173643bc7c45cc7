"""The generator of the roles: requests that it finds in a module, and roles that it writes."""

import types

import pytest
import yaml

from hack.generate.update_rbac import ROLES, Generated, rules_text, with_rules
from jobsetpy.app.rbac import Need, Reader, UnknownClassError

HEAD = """
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Service
from jobsetpy.client import HttpRequest

TABLE = {"Job": Job, "Service": Service}
Kind = type[Job] | type[Service]


class Writer:
"""
JOBS = ("batch", "jobs")
SERVICES = ("", "services")


def read(tmp_path, body):
    """Requests of a module with these methods."""
    path = tmp_path / "made_up.py"
    path.write_text(HEAD + body)
    module = types.ModuleType("made_up")
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    return {(need.group, need.resource, need.verb) for need in Reader(module, path).needs()}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    def f(self): self._client.get(Job, 'n', 'x')", {(*JOBS, "get")}),
        ("    def f(self, manager): manager.informer(Job)", {(*JOBS, "list"), (*JOBS, "watch")}),
        (
            "    def f(self): self._client.merge_patch(Job, 'n', 'x', {}, subresource='status')",
            {("batch", "jobs/status", "patch")},
        ),
        (
            "    def f(self, kind): self._client.create(TABLE[kind], 'n', {})",
            {(*JOBS, "create"), (*SERVICES, "create")},
        ),
        (
            (
                "    def f(self, cls): self._client.delete(cls, 'n', 'x')\n"
                "    def g(self): self.f(Job)\n"
                "    def h(self): self.f(Service)"
            ),
            {(*JOBS, "delete"), (*SERVICES, "delete")},
        ),
        (
            (
                "    def f(self):\n"
                "        targets = ((Job, 'a'), (Service, 'b'))\n"
                "        for kind, name in targets:\n"
                "            self._client.get(kind, 'n', name)"
            ),
            {(*JOBS, "get"), (*SERVICES, "get")},
        ),
        (
            (
                "    def f(self, change: 'Kind', job: Job): pass\n"
                "    def g(self, change: Kind, job: Job):\n"
                "        kind, name = change, 'a'\n"
                "        self._client.get(kind, 'n', name)"
            ),
            {(*JOBS, "get"), (*SERVICES, "get")},
        ),
        (
            (
                "    def f(self, n):\n"
                "        self.client.raw(HttpRequest("
                "method='POST', path=f'/api/v1/namespaces/{n}/pods/{n}/binding'))"
            ),
            {("", "pods/binding", "create")},
        ),
        (
            (
                "    def f(self, n, p):\n"
                "        path = 'unused'\n"
                "        self.client.raw(HttpRequest("
                "method='PATCH', path=f'/api/v1/namespaces/{n.a}/pods/{p}'))"
            ),
            {("", "pods", "patch")},
        ),
        (
            (
                "    def f(self, g, v):\n"
                "        path = f'/apis/{g}/{v}'\n"
                "        self.client.raw(HttpRequest(method='GET', path=path))"
            ),
            set(),
        ),
        ("    def f(self, names): names.get(Job)", set()),
    ],
)
def test_requests_are_found(tmp_path, body, expected):
    """Resource and verb are found for all ways to name a class."""
    assert read(tmp_path, body) == expected


@pytest.mark.parametrize(
    "call",
    [
        "self._client.get(self.kind, 'n', 'x')",
        "self._client.raw(HttpRequest(method='DELETE', path='/api/v1/pods'))",
    ],
)
def test_unknown_requests_are_errors(tmp_path, call):
    """A request whose class cannot be inferred is an error with its place."""
    with pytest.raises(UnknownClassError, match="made_up:11"):
        read(tmp_path, f"    def f(self): {call}")


def test_only_the_named_role_changes():
    """Bindings and other roles of the file are unchanged."""
    role = next(each for each in ROLES if each.name == "jobset-manager-secrets-role")
    kept = "kind: Role\nmetadata:\n  name: other\nrules: []\n---\n"
    old = "kind: Role\nmetadata:\n  name: jobset-manager-secrets-role\nrules:\n- old\n"
    assert with_rules(kept + old, role) == kept + old.replace("rules:\n- old\n", rules_text(role))
    with pytest.raises(ValueError, match="holds no role jobset-manager-secrets-role"):
        with_rules(kept, role)


def test_names_limit_only_verbs_with_a_name():
    """A rule with an object's name does not have verbs whose requests have no name."""
    role = Generated(
        file="", name="made-up", modules=(),
        names={"secrets": "mine"},
        also=tuple((Need("", "secrets", verb, ""), "why") for verb in ("create", "get", "patch")),
    )  # fmt: skip
    rules = yaml.safe_load(rules_text(role))["rules"]
    assert rules == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["mine"],
            "verbs": ["get", "patch"],
        },
    ]
