"""Clients that write back what they read: a typed Go client and kubectl, on a real API server."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes.client
import kubernetes.config
import kubernetes.dynamic
import pytest
import yaml

from hack.cluster._binaries import Binaries
from hack.cluster._progress import Progress
from support.admission.admission_kit import Api
from support.admission.forms import FORMS, gathered, pair, with_value
from support.admission.typed_client import typed_client
from support.cluster.install import ROOT

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("webhooks"),
    pytest.mark.timeout(600),
]

EXAMPLES = ROOT / "examples"
NEWER = (
    "coscheduling/scheduling-field.yaml",
    "coscheduling/native.yaml",
    "suspend/queue-per-job.yaml",
)
"""Examples that an older typed client may not write back: its updates remove `spec.scheduling`,
which is refused while pods are in their groups (KEP-969); and where a queue suspends single Jobs,
the JobSet is never suspended (KEP-1172)."""
UNCHANGING = (
    "update without a change",
    "suspend",
    "merge patch",
    "json patch of all of the spec",
    "server-side apply",
    "resume with a node selector",
)


def complete(body: dict, name: str) -> dict:
    """The JobSet with a kind and its own name."""
    out = copy.deepcopy(body)
    out |= {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    out["metadata"] = {**out["metadata"], "name": name}
    out["metadata"].pop("namespace", None)
    return out


def examples() -> dict[str, dict]:
    """Return all JobSets of the examples, by file and name."""
    found = {}
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document.get("kind") == "JobSet":
                metadata = document["metadata"]
                name = metadata.get("name") or metadata["generateName"]
                found[f"{path.relative_to(EXAMPLES)}:{name}"] = document
    return found


async def run(*command: str, input_: str = "", **environ: str) -> str:
    """Return the output of a program that succeeds."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ
    )
    out, err = await process.communicate(input_.encode())
    assert process.returncode == 0, err.decode()
    return out.decode()


async def written_back(cluster: Any, names: list[str]) -> list[dict[str, str]]:
    """Return the result of each step of the typed client for each JobSet."""
    program = await asyncio.to_thread(typed_client)
    out = await run(str(program), input_="\n".join(names), KUBECONFIG=str(cluster.kubeconfig))
    return [json.loads(line) for line in out.splitlines()]


async def check_written_back(
    cluster: Any, namespace: str, bodies: Mapping[str, dict]
) -> dict[str, dict[str, str]]:
    """Assert that no step without a change is refused; return the results by the bodies' keys."""
    names = [f"{namespace}/{body['metadata']['name']}" for body in bodies.values()]
    results = dict(zip(bodies, await written_back(cluster, names), strict=True))
    refusals = [
        (name, step, result[step])
        for name, result in results.items()
        for step in UNCHANGING
        if result[step]
    ]
    assert refusals == []
    return results


async def store(api: Api, bodies: Iterable[dict]) -> None:
    """Store all JobSets; none may be refused."""
    for body in bodies:
        await api.create(body)


@pytest.mark.parametrize("which", [0, 1], ids=["as written", "as typed clients print them"])
async def test_typed_client_writes_back_every_form(cluster, shared_client, namespace, which):
    """Whichever client stored it; a change is still refused."""
    bodies = {form.name: complete(pair(form)[which], f"form-{at}") for at, form in enumerate(FORMS)}
    await store(Api(shared_client, namespace), bodies.values())
    for name, steps in (await check_written_back(cluster, namespace, bodies)).items():
        assert "field is immutable" in steps["another image"], name
        assert "spec.replicatedJobs" in steps["another image"], name


def example_bodies() -> dict[str, dict]:
    """Return the JobSets of examples that the client knows, with names of their own, by file."""
    known = {file: each for file, each in examples().items() if not file.startswith(NEWER)}
    bodies = {}
    for number, (file, document) in enumerate(known.items()):
        body = bodies[file] = complete(document, f"example-{number}")
        body["metadata"].pop("generateName", None)
    return bodies


def form_bodies() -> dict[str, dict]:
    """Return JobSets with all forms, under names of their own."""
    each = enumerate(gathered().items())
    return {name: complete(body, f"form-{at}") for at, (name, body) in each}


async def test_typed_client_may_write_back_each_example(cluster, shared_client, namespace) -> None:
    """Step by step, as Kueue and others do."""
    bodies = example_bodies()
    await store(Api(shared_client, namespace), bodies.values())
    await check_written_back(cluster, namespace, bodies)


async def test_kubectl_repeats_each_example(cluster, namespace, tmp_path) -> None:
    """Applying, replacing and server-side applying an unchanged manifest is accepted."""
    manifest = tmp_path / "all.yaml"
    bodies = example_bodies()
    manifest.write_text(yaml.safe_dump_all(bodies.values()))
    found = await asyncio.to_thread(Binaries.find, ["kubectl"], Progress())
    environ = {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path), "PATH": "/bin"}

    async def kubectl(*words: str) -> str:
        command = (str(found["kubectl"]), "-n", namespace, *words, "-f", str(manifest))
        return await run(*command, **environ)

    await kubectl("apply")
    for words in (["apply"], ["replace"], ["apply", "--server-side", "--force-conflicts"]):
        await kubectl(*words)
        listed = json.loads(await kubectl("get", "-o", "json"))["items"]
        # The API server counts changes of the spec.
        assert {each["metadata"]["generation"] for each in listed} == {1}, words
    await check_written_back(cluster, namespace, bodies)
    await kubectl("apply", "--server-side", "--force-conflicts")


async def test_typed_client_may_write_back_forms_that_the_go_controller_stored(
    cluster, shared_client, namespace, foreign_namespace
) -> None:
    """JobSets that were stored without our webhooks, as the Go types print them."""
    bodies = {form.name: as_go_stores(pair(form)[1], f"form-{at}") for at, form in enumerate(FORMS)}
    program = await asyncio.to_thread(typed_client)
    printed = await run(str(program), "print", input_="\n".join(map(json.dumps, bodies.values())))
    await store(Api(shared_client, foreign_namespace.name), map(json.loads, printed.splitlines()))
    await foreign_namespace.use_webhooks()
    results = await check_written_back(cluster, foreign_namespace.name, bodies)
    for name, steps in results.items():
        assert "field is immutable" in steps["another image"], name


def as_go_stores(body: dict, name: str) -> dict:
    """The JobSet with the defaults of the Go project's webhook."""
    out = complete(body, name)
    spec = out["spec"]
    network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    spec["network"] = {**network, **spec.get("network", {})}
    for at, rule in enumerate(spec.get("failurePolicy", {}).get("rules", [])):
        rule.setdefault("name", f"failurePolicyRule{at}")
    for job in spec["replicatedJobs"]:
        job["template"]["spec"]["template"]["spec"].setdefault("restartPolicy", "OnFailure")
    return out


class Official:
    """The official Python client, for the JobSets of a namespace."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._api = kubernetes.config.new_client_from_config(str(kubeconfig))
        self._objects = kubernetes.dynamic.DynamicClient(self._api).resources.get(
            api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet"
        )
        self._namespace = namespace

    def get(self, name: str) -> dict:
        return self._objects.get(name=name, namespace=self._namespace).to_dict()

    def replace(self, body: dict) -> None:
        self._objects.replace(body=body, namespace=self._namespace)

    def patch(self, name: str, body: Any, kind: str) -> None:
        kind = f"application/{kind}"
        self._objects.patch(name=name, namespace=self._namespace, body=body, content_type=kind)

    def apply(self, body: dict) -> None:
        self._objects.server_side_apply(
            body=body, namespace=self._namespace, field_manager="py", force_conflicts=True
        )

    def through_models(self, body: dict) -> dict:
        """Return the object with its Job templates as the client's classes print them."""
        out = copy.deepcopy(body)
        for job in out["spec"]["replicatedJobs"]:
            response = SimpleNamespace(data=json.dumps(job["template"]))
            model = self._api.deserialize(response, "V1JobTemplateSpec")
            job["template"] = self._api.sanitize_for_serialization(model)
        return out

    def write_back(self, name: str) -> dict[str, str]:
        """Write a JobSet back in each way, with an allowed change; return the refusals."""

        def operations() -> list[dict]:
            spec = {**self.get(name)["spec"], "suspend": False}
            return [{"op": "replace", "path": "/spec", "value": spec}]

        def merged() -> dict:
            return {"metadata": {"labels": {"a": "b"}}, "spec": self.get(name)["spec"]}

        def suspended() -> dict:
            return with_value(self.get(name), ("spec", "suspend"), True)

        steps: dict[str, Callable[[], None]] = {
            "read-modify-write": lambda: self.replace(suspended()),
            "through models": lambda: self.replace(self.through_models(self.get(name))),
            "merge patch": lambda: self.patch(name, merged(), "merge-patch+json"),
            "json patch": lambda: self.patch(name, operations(), "json-patch+json"),
            "server-side apply": lambda: self.apply(applied(self.get(name))),
        }
        refused = {}
        for step, write in steps.items():
            try:
                write()
            except kubernetes.client.ApiException as error:
                refused[step] = str(error.body)
        return refused


def applied(stored: dict) -> dict:
    """Return the body that a client applies after it has read the object."""
    names = {key: stored["metadata"][key] for key in ("name", "namespace")}
    return {**{key: stored[key] for key in ("apiVersion", "kind", "spec")}, "metadata": names}


async def test_official_python_client_writes_back_all_forms(cluster, shared_client, namespace):
    """All forms and examples, as plain JSON and through its classes."""
    bodies = form_bodies() | example_bodies()
    await store(Api(shared_client, namespace), bodies.values())
    client = Official(cluster.kubeconfig, namespace)
    names = {name: body["metadata"]["name"] for name, body in bodies.items()}

    def write_all() -> dict[str, dict[str, str]]:
        return {name: client.write_back(stored) for name, stored in names.items()}

    wrong = await asyncio.to_thread(write_all)
    assert {name: each for name, each in wrong.items() if each} == {}


EDITOR = """#!/bin/sh
exec sed -i 's/suspend: true$/suspend: false/' "$1"
"""


async def test_kubectl_edits_and_patches_all_forms(cluster, shared_client, namespace, tmp_path):
    """All forms and examples together, in an editor and by patches; strategic ones are refused."""
    bodies = [*form_bodies().values(), *example_bodies().values()]
    for body in bodies:
        body["spec"]["suspend"] = True
    await store(Api(shared_client, namespace), bodies)
    found = await asyncio.to_thread(Binaries.find, ["kubectl"], Progress())
    editor = tmp_path / "editor"
    editor.write_text(EDITOR)
    editor.chmod(0o700)
    environ = {
        "KUBECONFIG": str(cluster.kubeconfig),
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "KUBE_EDITOR": str(editor),
    }
    listed = tmp_path / "names.yaml"
    listed.write_text(
        yaml.safe_dump_all(
            {**body, "spec": {}, "metadata": {"name": body["metadata"]["name"]}} for body in bodies
        )
    )

    async def kubectl(*words: str) -> str:
        return await run(str(found["kubectl"]), "-n", namespace, *words, **environ)

    async def suspended() -> set[bool]:
        items = json.loads(await kubectl("get", "jobsets", "-o", "json"))["items"]
        assert len(items) == len(bodies)
        return {item["spec"]["suspend"] for item in items}

    await kubectl("edit", "jobsets")
    assert await suspended() == {False}
    where = ("patch", "-f", str(listed))
    await kubectl(*where, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    assert await suspended() == {True}
    operation = '[{"op":"replace","path":"/spec/suspend","value":false}]'
    await kubectl(*where, "--type=json", "-p", operation)
    assert await suspended() == {False}
    with pytest.raises(AssertionError, match="strategic"):
        await kubectl("patch", "jobset", "form-0", "-p", '{"spec":{"suspend":true}}')
    image = '[{"op":"replace","path":"%s/containers/0/image","value":"x"}]'
    pod = "/spec/replicatedJobs/0/template/spec/template/spec"
    with pytest.raises(AssertionError, match="field is immutable"):
        await kubectl("patch", "jobset", "form-0", "--type=json", "-p", image % pod)


async def test_field_with_a_default_may_be_left_out_again(shared_client, namespace) -> None:
    """A manifest without defaulted fields may replace the stored object."""
    api = Api(shared_client, namespace)
    body = complete(pair(FORMS[0])[0], "plain")
    body["spec"] = {"replicatedJobs": body["spec"]["replicatedJobs"]}
    body["spec"]["replicatedJobs"][0]["template"]["spec"].pop("completionMode")
    stored = await api.create(body)
    again = await api.change({**stored, "spec": body["spec"]}, None, "spec", "nothing")
    assert again["spec"] == stored["spec"]


async def test_field_is_removed_when_it_is_left_out(shared_client, namespace) -> None:
    """A value that was set does not come back, as with other CRDs of JobSet."""
    api = Api(shared_client, namespace)
    body = complete(pair(FORMS[0])[0], "network")
    stored = await api.create(with_value(body, ("spec", "network"), {"subdomain": "own"}))
    assert "network" not in (await api.change(stored, None, "spec", "network"))["spec"]


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("resources", {"requests": {"cpu": 0.5}}, "500m"),
        ("resources", {"limits": {"cpu": 1.5}}, "1500m"),
    ],
)
async def test_number_is_accepted_as_a_quantity(shared_client, namespace, field, value, text):
    """Half a processor is often written as a number."""
    api = Api(shared_client, namespace)
    body = complete(pair(FORMS[0])[0], "number")
    container = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    container["containers"][0][field] = value
    stored = await api.create(body)
    (job,) = stored["spec"]["replicatedJobs"]
    found = job["template"]["spec"]["template"]["spec"]["containers"][0][field]
    assert [*next(iter(found.values())).values()] == [text]
