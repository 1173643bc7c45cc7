"""The replacement for kustomize: features that it supports, and errors for others."""

import pytest
import yaml

from hack.generate.kustomize import render

DEPLOYMENT = {
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"image": "i:1"}, {"image": "other:1"}]},
        },
    },
}
SERVICE = {"kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}}}
TARGET = {"kind": "Deployment", "name": "d"}
ADD = [{"op": "add", "path": "/spec/replicas", "value": 2}]


def folder(place, files, **kustomization):
    place.mkdir()
    for name, documents in files.items():
        (place / name).write_text(yaml.safe_dump_all(documents))
    (place / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return place


@pytest.fixture
def base(tmp_path):
    """A folder with a Deployment and a Service."""
    return folder(tmp_path / "base", {"all.yaml": [DEPLOYMENT, SERVICE]}, resources=["all.yaml"])


@pytest.fixture
def on_base(base, tmp_path):
    """Return a function that makes a kustomization of the base."""
    return lambda name="top", **more: folder(tmp_path / name, {}, resources=["../base"], **more)


def test_images_are_set_in_configured_fields(on_base, tmp_path):
    """This holds also for kustomizations on top; names within a longer text are unchanged."""
    env = [{"name": "A", "value": "i:1"}, {"name": "B", "value": "--x=i:1"}, {"name": "C"}]
    add = [{"op": "add", "path": "/spec/template/spec/containers/0/env", "value": env}]
    fields = {"images": [{"kind": "Deployment", "path": "spec/template/spec/containers/env/value"}]}
    folder(
        tmp_path / "more",
        {"patch.yaml": [add], "fields.yaml": [fields]},
        patches=[{"path": "patch.yaml", "target": TARGET}],
        configurations=["fields.yaml"],
    )
    low = on_base("low", components=["../more"])
    images = [{"name": "i", "newTag": "2"}]
    deployment, _ = render(folder(tmp_path / "top", {}, resources=["../low"], images=images))
    first, other = deployment["spec"]["template"]["spec"]["containers"]
    assert (first["image"], other["image"]) == ("i:2", "other:1")
    assert [each.get("value") for each in first["env"]] == ["i:2", "--x=i:1", None]

    deployment, _ = render(low, images={"i": "host:5000/i:3"})
    (first, _) = deployment["spec"]["template"]["spec"]["containers"]
    assert first["image"] == first["env"][0]["value"] == "host:5000/i:3"


@pytest.mark.parametrize(
    ("words", "kustomization"),
    [
        ("namePrefix", {"namePrefix": "x-"}),
        ("target", {"patches": [{"patch": yaml.safe_dump({"spec": {}}), "target": TARGET}]}),
        ("no Deployment other", {"patches": [{"patch": yaml.safe_dump(ADD), "target": {**TARGET, "name": "other"}}]}),
        ("kind and a name", {"patches": [{"patch": yaml.safe_dump(ADD), "target": {"kind": "Deployment"}}]}),
        ("only images", {"configurations": ["../other.yaml"]}),
        ("includeTemplates", {"labels": [{"includeTemplates": True, "pairs": {}}]}),
    ],
)  # fmt: skip
def test_unsupported_fields_are_refused(on_base, tmp_path, words, kustomization):
    """Ignoring a part of a kustomization would give another result than kustomize."""
    (tmp_path / "other.yaml").write_text(yaml.safe_dump({"nameReference": []}))
    top = on_base(**kustomization)
    with pytest.raises(ValueError, match=words):
        render(top)
