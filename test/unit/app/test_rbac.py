"""``jobsetpy rbac MODULE``: roles of a custom controller, derived from its code."""

import textwrap

import pytest
import yaml

from jobsetpy import runtime as rt
from jobsetpy.app.main import main
from jobsetpy.app.rbac import METHODS

CODE = """
from collections.abc import Iterator
from typing import ClassVar
import attrs
from jobsetpy import runtime as rt

NAME = "sites"
CLEANUP = rt.finalizer("example.com/files")

@rt.model
class Status:
    ready: bool = False

@rt.resource("example.com", "v1", "Website", "websites")
@rt.model
class Website:
    RESOURCE: ClassVar[rt.ResourceInfo]
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    status: Status = Status()

@attrs.frozen
class Sites:
    client: rt.Client
    sites: rt.Store[Website]

    async def reconcile(self, request):
"""
SETUP = """
def setup(manager):
    manager.informer(Website)
"""
WEBSITES = ("example.com", "websites")


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """Return a function with the command's output for a reconciler's body: documents, or the error."""

    def run(body, *flags, setup=SETUP):
        name = f"made_up_{abs(hash((body, setup)))}"
        code = CODE + textwrap.indent(textwrap.dedent(body), "        ") + setup
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)
        exit_code = main(["rbac", name, "--name", "sites", *flags])
        output = capsys.readouterr()
        return [*yaml.safe_load_all(output.out)] if exit_code == 0 else output.err

    return run


def allowed(documents, kind="ClusterRole"):
    """Group, resource, verb and name of all permissions in roles of a kind."""
    return {
        (group, resource, verb, name)
        for document in documents
        if document["kind"] == kind
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


WATCHED = {(*WEBSITES, "list", ""), (*WEBSITES, "watch", "")}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("pass", set()),
        ("await self.client.delete(rt.Pod, 'ns', 'x')", {("", "pods", "delete", "")}),
        (
            "await self.client.create_subresource(rt.Pod, 'ns', 'x', 'eviction', {})",
            {("", "pods/eviction", "create", "")},
        ),
        (
            """
            question = rt.HttpRequest(method="GET", path="/version")
            await self.client.raw(question)
            """,
            set(),
        ),
        (
            "await self.client.apply(rt.Pod, 'ns', 'x', {}, owner=NAME)",
            {("", "pods", "create", ""), ("", "pods", "patch", "")},
        ),
        (
            """
            site = self.sites.get(request.key)
            await rt.patch_status(self.client, site, Status(ready=True))
            """,
            {(*WEBSITES, "get", ""), ("example.com", "websites/status", "patch", "")},
        ),
        (
            """
            for site in self.sites.list():
                await CLEANUP.guard(self.client, site, print)
            """,
            {(*WEBSITES, "get", ""), (*WEBSITES, "patch", "")},
        ),
        (
            """
            if (site := self.sites.get(request.key)) is None:
                return
            await rt.create_or_apply(
                self.client, rt.Job, 'ns', 'x', {}, owner=NAME, controller=site
            )
            """,
            {
                *(("batch", "jobs", verb, "") for verb in ("get", "create", "patch")),
                ("example.com", "websites/finalizers", "update", ""),
            },
        ),
        (
            """
            site, name = self.sites.get(request.key), rt.Job(metadata=request.key)
            await CLEANUP.guard(self.client, site, print)
            """,
            {(*WEBSITES, "get", ""), (*WEBSITES, "patch", "")},
        ),
        (
            "async for node in rt.list_objects(self.client, rt.Node): pass",
            {("", "nodes", "list", "")},
        ),
    ],
)
def test_rules_are_derived_from_the_code(printed, body, expected):
    """They allow exactly the requests of the client, stores and the library's helpers."""
    assert allowed(printed(body)) == WATCHED | expected


@pytest.mark.parametrize(
    "setup",
    [
        "informers = [manager.informer(cls) for cls in KINDS.values()]",
        "informers = {kind: manager.informer(cls) for kind, cls in KINDS.items()}",
        "kinds = (rt.Job, rt.Pod)\n    for cls in PAIR:\n        manager.informer(cls)",
    ],
)
def test_classes_of_a_table_are_reported_when_a_loop_uses_it(printed, setup):
    """Each class of the table is listed and watched, next to other informers of the function."""
    setup = f"""
PAIR = (rt.Job, rt.Pod)
KINDS = {{"Job": rt.Job, "Pod": rt.Pod}}
def setup(manager):
    sites = manager.informer(Website)
    {setup}
"""
    (role, *_) = [each for each in printed("pass", setup=setup) if each["kind"] == "ClusterRole"]
    listed = {each["resources"][0]: each["verbs"] for each in role["rules"]}
    assert listed == {kind: ["list", "watch"] for kind in ("jobs", "pods", "websites")}


def test_every_method_of_the_client_is_known():
    """A new method must not be missed silently."""
    own = {"aclose", "dry_run", "fenced_by", "raw", "transport", "unpooled"}
    public = {name for name in vars(rt.Client) if not name.startswith("_")}
    assert public - own <= set(METHODS)


@pytest.mark.parametrize("of", ["anything()", "anything(self.sites.get(request.key))"])
def test_a_class_that_cannot_be_inferred_is_named(printed, of):
    """Nothing is omitted silently: a function may return another kind than it is given."""
    error = printed(f"await rt.patch_status(self.client, {of}, Status())")
    assert f"of which kind is {of!r}? Annotate it" in error


def test_a_request_that_changes_something_is_not_discovery(printed):
    """Its permission cannot be inferred, although a question of what is served is next to it."""
    body = """
    path = f'/apis/{group}/{version}'
    await self.client.raw(rt.HttpRequest(method='GET', path=path))
    await self.client.raw(rt.HttpRequest(method='POST', path=path))
    """
    assert "method='POST'" in printed(body)


def test_namespaces_and_election(printed):
    """Roles are in the watched namespaces; the Lease is in the manager's namespace."""
    flags = ("--watch-namespace", "a", "--watch-namespace", "b", "--leader-elect")
    documents = printed("await self.client.get(rt.Node, '', 'x')", *flags)
    roles = [
        (document["kind"], document["metadata"].get("namespace"))
        for document in documents
        if "rules" in document
    ]
    assert roles == [("Role", "a"), ("Role", "b"), ("ClusterRole", None), ("Role", "default")]
    assert allowed(documents) == {("", "nodes", "get", "")}
    assert ("coordination.k8s.io", "leases", "create", "") in allowed(documents, "Role")


def test_webhooks_need_their_secret_and_their_configurations(printed):
    """The rules name them, so that other Secrets and configurations are not allowed."""
    setup = """
def check(request: rt.AdmissionRequest[Website]) -> Iterator[rt.Invalid]:
    yield from ()

def setup(manager):
    manager.recorder(NAME)
    rt.serve_webhooks(manager, rt.Webhook(Website, validate=check), name=NAME)
"""
    documents = printed("pass", setup=setup)
    configurations = "validatingwebhookconfigurations"
    assert ("admissionregistration.k8s.io", configurations, "patch", "sites") in allowed(documents)
    assert ("events.k8s.io", "events", "create", "") in allowed(documents)
    assert allowed(documents, "Role") == {
        ("", "secrets", "get", "sites-webhooks"),
        ("", "secrets", "patch", "sites-webhooks"),
    }
