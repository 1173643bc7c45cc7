"""The chart in a real API server: objects are valid, Helm installs, upgrades and removes them."""

import copy

import pytest
import yaml

from support.cluster.chart_kit import CHART, EVERYTHING, LOADER, Kube, namespaced

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SPACE = "training-control"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
GROUP = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{WEBHOOKS}/mutatingwebhookconfigurations/jobset-mutating-webhook-configuration"
BUNDLE = "Y2VydGlmaWNhdGU="


@pytest.fixture(scope="module")
def space(kube):
    """A namespace of an unusual name that enforces the restricted profile."""
    labels = {"name": SPACE, "labels": RESTRICTED}
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": labels})
    return SPACE


@pytest.mark.parametrize(
    "values",
    [
        {},
        EVERYTHING,
        {**EVERYTHING, "certManager": {"enable": False}},
        {
            "coscheduling": {"admission": "webhook"},
            "coscheduler": {"enable": True, "mode": "marked-pods"},
        },
        {"webhook": {"enable": False}, "controller": {"leaderElection": {"enable": False}}},
    ],
    ids=["defaults", "everything", "everything-internal", "marked-pods", "nothing"],
)
def test_every_object_is_valid(online, kube, space, values):
    """The API server accepts each object unchanged, in a namespace that is not the usual one."""
    for document in online.render(values, release="r", namespace=space).values():
        if namespaced(document):
            # an account of agents, and the role by which a second scheduler identifies its callers
            assert document["metadata"]["namespace"] in {space, "default", "kube-system"}
        kube.apply(document, dryRun="All")


def test_pods_fit_the_restricted_profile(online, kube, space):
    """A namespace that enforces the profile accepts the pods with all options that change them."""
    rendered = online.render(EVERYTHING, release="r", namespace=space)
    kube.apply(rendered["ServiceAccount", "r-jobset-controller"])
    template = rendered["Deployment", "r-jobset-controller"]["spec"]["template"]
    pod = copy.deepcopy({"apiVersion": "v1", "kind": "Pod", **template})
    pod["metadata"] |= {"name": "manager", "namespace": space}
    kube.apply(pod, dryRun="All")
    pod["spec"]["hostNetwork"] = True
    answer = kube.send("POST", f"/api/v1/namespaces/{space}/pods", pod, dryRun="All")
    assert answer.status == 403
    kube.delete(rendered["ServiceAccount", "r-jobset-controller"])


def other_deployment(name, namespace):
    """Return a Deployment whose selector is not ours."""
    labels = {"app.kubernetes.io/component": "controller"}
    container = {"name": "controller", "image": "other:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def other_chart(folder):
    """Return the folder of a chart with that Deployment, for any release."""
    (folder / "templates").mkdir()
    (folder / "Chart.yaml").write_text("{apiVersion: v2, name: jobset, version: 0.12.0}")
    document = other_deployment("{{ .Release.Name }}-jobset-controller", "{{ .Release.Namespace }}")
    (folder / "templates" / "deployment.yaml").write_text(yaml.safe_dump(document))
    return folder


def objects_of(online, release, space):
    """Return the objects that Helm has installed."""
    text = online.ok("get", "manifest", release, "--namespace", space)
    return [item for item in yaml.load_all(text, LOADER) if item]


def test_chart_installs_upgrades_and_uninstalls(online, kube, space, tmp_path):
    """Values that managers write are kept by an upgrade; the CRD stays after the removal."""
    where = ("--namespace", space)
    values = {"agent": {"namespaces": ["default", "later"]}, "controller": {"replica": 2}, "x": {}}
    # A release of another chart with the same names: only its Deployment has to go.
    online.ok("install", "gangs", str(other_chart(tmp_path)), *where)
    message = online.refused("upgrade", "gangs", str(CHART), *where, values=values)
    assert "field is immutable" in message
    kube.delete(other_deployment("gangs-jobset-controller", space))
    for path in (CHART / "crds").iterdir():  # an upgrade does not apply them
        kube.apply(yaml.load(path.read_text(), LOADER), fieldManager="helm")
    notes = online.ok("upgrade", "gangs", str(CHART), *where, values=values)
    assert "ignores them:\n\n  controller.replica\n  x\n" in notes
    assert "--set image.registry=REGISTRY" in notes
    installed = objects_of(online, "gangs", space)
    assert len(installed) > 20
    accounts = [each["metadata"] for each in installed if each["kind"] == "ServiceAccount"]
    spaces = [each["namespace"] for each in accounts if each["name"] == "jobset-agent"]
    assert spaces == ["default"]
    assert "do not exist, and got no account for agents: later." in notes
    for document in installed:
        assert kube.get(Kube.path(document, space)), document["metadata"]
    kube.served(GROUP)

    secret = f"/api/v1/namespaces/{space}/secrets/gangs-jobset-webhook-server-cert"
    kube.merge(secret, {"data": {"tls.crt": BUNDLE}})  # as managers do
    found = kube.get(MUTATING)
    for webhook in found["webhooks"]:
        webhook["clientConfig"]["caBundle"] = BUNDLE
    kube.merge(MUTATING, {"webhooks": found["webhooks"]})

    values = {"controller": {"replicas": 2, "clientConnection": {"qps": 50}}}
    deployment = f"/apis/apps/v1/namespaces/{space}/deployments/gangs-jobset-controller"
    before = kube.get(deployment)["spec"]["template"]
    online.ok("upgrade", "gangs", str(CHART), *where, values=values)
    spec = kube.get(deployment)["spec"]
    assert spec["replicas"] == 2
    assert spec["template"]["metadata"]["annotations"] != before["metadata"]["annotations"]
    assert kube.get(secret)["data"] == {"tls.crt": BUNDLE}
    bundles = [webhook["clientConfig"]["caBundle"] for webhook in kube.get(MUTATING)["webhooks"]]
    assert bundles == [BUNDLE] * len(found["webhooks"])

    message = online.refused("install", "second", str(CHART), "--namespace", "default")
    assert 'must equal "second"' in message  # one release owns the webhook configurations

    online.ok("upgrade", "gangs", str(CHART), *where, values=EVERYTHING)
    everything = objects_of(online, "gangs", space)
    assert len(everything) > len(installed)
    assert kube.get(secret) is None
    online.ok("uninstall", "gangs", *where)
    for document in (*installed, *everything):
        assert kube.get(Kube.path(document, space)) is None, document["metadata"]
    assert kube.get(GROUP)
