"""Webhooks of custom resources: their answers, and the manifests that register them."""

import asyncio
import base64
import textwrap
from typing import ClassVar

import pytest
import yaml

from jobsetpy import runtime as rt
from jobsetpy.app.main import main
from jobsetpy.app.webhook_manifests import webhook_manifests
from jobsetpy.client import Client
from jobsetpy.runtime._webhooks import carried_over, json_patch
from jobsetpy.serving.review import ReviewRequest
from jobsetpy.serving.webhook_certificates import MutatingConfiguration, ValidatingConfiguration
from jobsetpy.testing import World
from jobsetpy.testing import json_patch as patched


@rt.model
class Spec:
    host: str = ""
    replicas: int = 0


@rt.resource("example.com", "v2", "Website", "websites")
@rt.model
class Website:
    RESOURCE: ClassVar[rt.ResourceInfo]
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    spec: Spec = Spec()


def fill_in(site: Website) -> Website:
    """Default to two replicas."""
    return rt.evolve(site, spec=rt.evolve(site.spec, replicas=site.spec.replicas or 2))


def check(request: rt.AdmissionRequest[Website]):
    """Require at most nine replicas, and a host that does not change."""
    if request.new is None:
        return
    if request.new.spec.replicas > 9:
        yield rt.Invalid("spec.replicas", "at most 9")
    if request.old is not None and request.old.spec.host != request.new.spec.host:
        yield rt.Invalid("spec.host", f"{request.user} may not change it")
    if not request.new.spec.host:
        yield rt.Warn("the site has no address")


WEBHOOK = rt.Webhook(Website, default=fill_in, validate=check)


def site(**spec):
    return {
        "apiVersion": "example.com/v2",
        "kind": "Website",
        "metadata": {"name": "a", "managedFields": [{"manager": "kubectl"}]},
        "spec": {"host": "example.com", **spec},
    }


def review(new, old=None, **more):
    return ReviewRequest(
        "1", "UPDATE" if old else "CREATE", "ns", "a", new, old, {"username": "mia"}, **more
    )


@pytest.mark.looptime
async def test_defaults_are_a_patch_that_keeps_unknown_fields():
    """The patch has only the changes that ``default`` made."""
    raw = site(theme={"colour": "red"})
    answer = await WEBHOOK.answer_mutate(review(raw))
    assert list(answer.patch) == [{"op": "add", "path": "/spec/replicas", "value": 2}]
    again = await WEBHOOK.answer_mutate(review(patched(raw, list(answer.patch))))
    assert not again.patch
    assert answer.status is None


@pytest.mark.looptime
async def test_every_problem_is_reported_with_its_field():
    """As in the API server's own errors, there is one cause each, and the message has all."""
    answer = await WEBHOOK.answer_validate(review(site(replicas=10, host="b"), site(replicas=1)))
    assert answer.status["code"] == 422
    assert answer.status["message"] == (
        'Website.example.com "a" is invalid: '
        "[spec.replicas: at most 9, spec.host: mia may not change it]"
    )
    assert [each["field"] for each in answer.status["details"]["causes"]] == [
        "spec.replicas",
        "spec.host",
    ]


@pytest.mark.looptime
async def test_warnings_and_coroutine_functions():
    """A warning does not refuse; functions may be coroutine functions that read objects."""

    async def look_up(request):
        await asyncio.sleep(1)
        return [rt.Warn(request.namespace)]

    answer = await WEBHOOK.answer_validate(review(site(host="")))
    assert list(answer.warnings) == ["the site has no address"]
    answer = await rt.Webhook(Website, validate=look_up).answer_validate(review(site()))
    assert (list(answer.warnings), answer.status) == (["ns"], None)


@pytest.mark.looptime
async def test_an_object_that_does_not_decode_is_refused_with_the_reason():
    """A default that returns nothing is an error of the program, not of the user."""
    answer = await WEBHOOK.answer_validate(review(site(replicas="many")))
    assert (answer.status["code"], "$.spec.replicas" in answer.status["message"]) == (400, True)
    webhook = rt.Webhook(Website, default=lambda site: None)
    with pytest.raises(TypeError, match="has to return a Website, not None"):
        await webhook.answer_mutate(review(site()))


@pytest.mark.parametrize(
    ("raw", "before", "after", "expected"),
    [
        ({"a": 1, "x": 0}, {"a": 1}, {}, {"x": 0}),
        ({"a": {"x": 0}}, {"a": {}}, {"a": {"b": 1}}, {"a": {"x": 0, "b": 1}}),
        (
            {"a": [{"n": 1, "x": 0}]},
            {"a": [{"n": 1}]},
            {"a": [{"n": 2}, {"n": 3}]},
            {"a": [{"n": 2, "x": 0}, {"n": 3}]},
        ),
        (
            [{"n": 1, "x": 0}, {"n": 2, "x": 1}],
            [{"n": 1}, {"n": 2}],
            [{"n": 2}],
            [{"n": 2, "x": 1}],
        ),
    ],
)
def test_unknown_fields_are_carried_over(raw, before, after, expected):
    """Fields unknown to the class are kept, also in items of lists."""
    made = carried_over(raw, before, after)
    assert made == expected
    if isinstance(raw, dict):
        assert patched(raw, list(json_patch(raw, made))) == made


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rt.Webhook(Website), "a webhook of Website needs default="),
        (lambda: rt.Webhook(Spec, default=fill_in), "stands for no kind"),
        (lambda: rt.Webhook(Website, default=fill_in, timeout_s=60), "between 1 and 30"),
        (lambda: rt.Webhook(Website, validate=check, operations=["PATCH"]), "CREATE, UPDATE"),
    ],
)
def test_mistakes_are_reported_when_a_webhook_is_created(make, message):
    """They are not found only by the first user whose object is refused."""
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def served(*webhooks, **settings):
    manager = rt.Manager(Client(World().transport()))
    made = rt.WebhookServerSettings(namespace="team", **settings)
    return rt.serve_webhooks(manager, *webhooks, name="sites", settings=made), manager


@pytest.mark.looptime
async def test_manifests():
    """They have a Service for the port, and configurations with the served paths."""
    made, _ = served(WEBHOOK, bind_address=":8443")
    secret, service, mutating, validating = webhook_manifests(made, namespace="team")
    assert secret["metadata"]["name"] == made.settings.secret_name
    assert service["spec"]["ports"] == [{"port": 443, "targetPort": 8443}]
    assert made.settings.dns_names[0] == "sites-webhooks.team.svc"
    for configuration, verb in ((mutating, "mutate"), (validating, "validate")):
        (webhook,) = configuration["webhooks"]
        path = f"/{verb}-example-com-v2-website"
        assert webhook["clientConfig"]["service"] == {
            "name": "sites-webhooks",
            "namespace": "team",
            "path": path,
        }
        assert path in made._handlers
        assert "namespaceSelector" not in webhook


@pytest.mark.looptime
async def test_webhooks_of_pods_exclude_system_namespaces():
    """Otherwise the manager's pods could not start while no manager runs."""
    made, _ = served(rt.Webhook(rt.Pod, validate=check))
    (_, _, validating) = webhook_manifests(made, namespace="team")
    (expression,) = validating["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert (expression["operator"], expression["values"]) == ("NotIn", ["kube-system", "team"])


@pytest.mark.looptime
async def test_two_webhooks_of_one_kind_are_refused():
    """They would have the same path."""
    with pytest.raises(ValueError, match="two webhooks of Website"):
        served(WEBHOOK, rt.Webhook(Website, validate=check))


def test_the_command_prints_the_manifests_of_run(tmp_path, monkeypatch, capsys):
    """``jobsetpy webhooks MODULE:setup`` needs no cluster; requests of setup are refused."""
    (tmp_path / "made_up_sites.py").write_text(
        textwrap.dedent("""
        from jobsetpy import runtime as rt

        def check(request):
            return []

        def setup(manager):
            rt.serve_webhooks(manager, rt.Webhook(rt.ConfigMap, validate=check), name="sites")

        def nothing(manager):
            pass

        async def asks(manager):
            await manager.client.get(rt.ConfigMap, "ns", "x")
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["webhooks", "made_up_sites:setup", "--url", "https://127.0.0.1:1/"]) == 0
    _, validating = yaml.safe_load_all(capsys.readouterr().out)
    (webhook,) = validating["webhooks"]
    assert webhook["clientConfig"] == {"url": "https://127.0.0.1:1/validate--v1-configmap"}
    assert main(["webhooks", "made_up_sites:nothing"]) == 2
    assert "serves no webhooks" in capsys.readouterr().err
    assert main(["webhooks", "made_up_sites:asks"]) == 2
    assert "setup asks the API server (GET /api/v1/namespaces/ns/configmaps/x)" in (
        capsys.readouterr().err
    )


async def test_certificates_are_created_and_distributed():
    """Secret and configurations get the authority that API servers need."""
    world = World()
    world.add_namespace("team")
    for kind in (MutatingConfiguration, ValidatingConfiguration):
        world.register(kind, status=False)
    manager = rt.Manager(Client(world.transport()))
    made = rt.serve_webhooks(
        manager,
        WEBHOOK,
        name="sites",
        settings=rt.WebhookServerSettings(
            namespace="team", bind_address="127.0.0.1:0", extra_dns_names=("127.0.0.1",)
        ),
    )
    for manifest in webhook_manifests(made, namespace="team"):
        plural = f"{manifest['kind'].lower()}s"
        if not world.get(plural, manifest["metadata"]["name"], namespace="team"):
            world.create(plural, manifest, namespace=manifest["metadata"].get("namespace", ""))
    certificates = made._certificates
    assert await certificates.source.renew()
    authority = world.get("secrets", "sites-webhooks", namespace="team")["data"]["ca.crt"]
    for kind in ("mutating", "validating"):
        (webhook,) = world.get(f"{kind}webhookconfigurations", "sites", namespace="")["webhooks"]
        assert webhook["clientConfig"]["caBundle"] == authority
    assert base64.b64decode(authority).startswith(b"-----BEGIN CERTIFICATE")
