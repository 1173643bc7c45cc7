"""Effect of each value of the chart on the objects, and refused values."""

import json

import pytest
import yaml

from jobsetpy.app.config import configuration
from jobsetpy.app.config.settings import Configuration
from support.cluster.chart_kit import CHART, EVERYTHING

pytestmark = pytest.mark.cluster  # for Helm, which is installed with the cluster's programs

DEPLOYMENT = ("Deployment", "jobset-controller")
CONFIG_MAP = ("ConfigMap", "jobset-controller-config")


@pytest.fixture(scope="module")
def everything(offline):
    """Every object that can be rendered with cert-manager."""
    return offline.render(EVERYTHING)


def parsed(rendered):
    """Return the manager's configuration, read by its own strict parser."""
    (text,) = (
        item["data"]["controller_manager_config.yaml"]
        for (kind, name), item in rendered.items()
        if kind == "ConfigMap" and name.endswith("-controller-config")
    )
    made = configuration.parse(text)
    assert configuration.validate(made) == []
    return made


def test_values_reach_the_pods(offline):
    """Values for pods are at the fields that Kubernetes reads."""
    values = {**EVERYTHING, "image": {**EVERYTHING["image"], "digest": f"sha256:{'0' * 64}"}}
    values["controller"] = {**values["controller"], "hostNetwork": True}
    controller = values["controller"]
    made = offline.render(values)[DEPLOYMENT]
    template = made["spec"]["template"]
    pod, (container,) = template["spec"], template["spec"]["containers"]
    assert made["metadata"]["annotations"] == controller["annotations"]
    assert controller["podAnnotations"].items() <= template["metadata"]["annotations"].items()
    assert controller["podLabels"].items() <= template["metadata"]["labels"].items()
    for name in ("affinity", "nodeSelector", "priorityClassName", "tolerations"):
        assert controller[name] == pod[name]
    assert pod["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert pod["imagePullSecrets"] == [{"name": "more"}, {"name": "pull"}]
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["labelSelector"] == made["spec"]["selector"]
    assert container["env"] == controller["env"]
    assert container["envFrom"] == controller["envFrom"]
    assert container["args"][-1] == "--kube-api-burst=7"
    repository = "images.test.invalid:5000/jobsetpy-manager"
    assert container["image"] == f"{repository}@sha256:{'0' * 64}"
    assert container["volumeMounts"][-1:] == controller["volumeMounts"]
    assert pod["volumes"][-1:] == controller["volumes"]


def test_values_reach_the_manager(offline):
    """Values for the manager are in its configuration, and a change of it restarts the pods."""
    values = {
        "controller": {
            "replicas": 3,
            "shards": 2,
            "clientConnection": {"qps": 1000000, "burst": 2000000},
            "leaderElection": {"leaseDuration": "1m", "renewDeadline": "40s", "retryPeriod": "5s"},
        },
        "webhook": {"port": 10443},
        "metrics": {"port": 18443},
        "health": {"port": 18081},
        "featureGates": {"RestartJob": False},
        "tls": {"minVersion": "VersionTLS13"},
        "inPlaceRestart": {"stalledAfter": "1m30s", "agentEventsPerSecond": 900},
        "restarts": {"backoff": "3s", "maxBackoff": "2m", "backoffResetAfter": "10m"},
        "lostNodes": {"deadline": "45s"},
        "image": {"registry": "images.test.invalid"},
        "agent": {"image": {"repository": "other/agent", "tag": "v2"}},
        "groupScheduling": {"image": "shell:1", "useAgent": True, "manageRbac": True},
        "coscheduling": {"backend": "coscheduler", "schedulerName": "gangs"},
        "injectedContainers": {"limits": {"cpu": "200m"}, "pullSecret": "registry"},
    }
    rendered = offline.render(values)
    made = parsed(rendered)
    agent = "images.test.invalid/other/agent:v2"
    assert made.section("clientConnection") == {"qps": 1e6, "burst": 2000000}
    assert made.section("leaderElection") == {
        **Configuration().section("leaderElection"),
        "leaseDuration": 60.0,
        "renewDeadline": 40.0,
        "retryPeriod": 5.0,
    }
    assert made["shards.count"] == 2
    assert made["webhook.port"] == 10443
    assert made["metrics.bindAddress"] == ":18443"
    assert made["health.healthProbeBindAddress"] == ":18081"
    assert made.feature_gates == {"RestartJob": False}
    assert made.section("tls") == {"minVersion": "VersionTLS13", "cipherSuites": ()}
    assert made["inPlaceRestart.agentImage"] == agent
    assert made["inPlaceRestart.stalledAfter"] == 90.0
    assert made["inPlaceRestart.agentEventsPerSecond"] == 900
    assert made["lostNodes.deadline"] == 45.0
    assert made["restarts.maxBackoff"] == 120.0
    groups = {"image": "shell:1", "agentImage": agent, "manageRbac": True}
    assert made.section("groupScheduling") == groups
    assert made["coscheduling.backend"] == "coscheduler"
    injected = {"requests": {}, "limits": {"cpu": "200m"}, "pullSecret": "registry"}
    assert made.section("injectedContainers") == injected
    assert made["coscheduling.schedulerName"] == "gangs"
    assert ("ClusterRole", "jobset-manager-group-role") in rendered
    template = rendered[DEPLOYMENT]["spec"]["template"]
    ports = {p["name"]: p["containerPort"] for p in template["spec"]["containers"][0]["ports"]}
    assert ports == {"health-probe": 18081, "metrics": 18443, "webhook": 10443}

    def config_hash(objects):
        annotations = objects[DEPLOYMENT]["spec"]["template"]["metadata"]["annotations"]
        return annotations["jobset.x-k8s.io/config-hash"]

    values["inPlaceRestart"]["stalledAfter"] = "2m"
    assert config_hash(offline.render(values)) != config_hash(rendered)
    assert config_hash(offline.render({"controller": {"replicas": 2}})) == config_hash(
        offline.render({"controller": {"replicas": 3}})
    )


def test_cert_manager_issues_the_certificates(everything):
    """Certificates are requested, injected and mounted, and the manager issues none."""
    made = parsed(everything)
    assert not made["internalCertManagement.enable"]
    assert ("Secret", "jobset-webhook-server-cert") not in everything
    assert ("Role", "jobset-manager-secrets-role") not in everything
    issuer = {"kind": "Issuer", "name": "jobset-selfsigned-issuer"}
    assert everything["Issuer", issuer["name"]]["spec"] == {"selfSigned": {}}
    pod = everything[DEPLOYMENT]["spec"]["template"]["spec"]
    folders = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    secrets = {
        folders[each["name"]]: each["secret"]["secretName"]
        for each in pod["volumes"]
        if "secret" in each
    }
    assert set(secrets) == {made["webhook.certDir"], made["metrics.certDir"]}
    for name, service, folder in (
        ("jobset-serving-cert", "jobset-webhook-service", made["webhook.certDir"]),
        ("jobset-metrics-cert", "jobset-metrics-service", made["metrics.certDir"]),
    ):
        spec = everything["Certificate", name]["spec"]
        host = f"{service}.jobset-system.svc"
        assert spec["dnsNames"] == [host, f"{host}.cluster.local"]
        assert spec["issuerRef"] == issuer
        assert spec["secretName"] == secrets[folder]
        assert ("Service", service) in everything
    for kind in ("mutating", "validating"):
        found = everything[
            f"{kind.title()}WebhookConfiguration", f"jobset-{kind}-webhook-configuration"
        ]
        assert found["metadata"]["annotations"] == {
            "cert-manager.io/inject-ca-from": "jobset-system/jobset-serving-cert"
        }


def test_prometheus_may_read_the_metrics(offline, everything):
    """Its monitors select the metrics' Services only, and verify the certificate if possible."""
    for name, service in (
        ("jobset-coscheduler-metrics-monitor", "jobset-coscheduler-metrics-service"),
        ("jobset-metrics-service-monitor", "jobset-metrics-service"),
    ):
        monitor = everything["ServiceMonitor", name]
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        selector = monitor["spec"]["selector"]["matchLabels"].items()
        chosen = [
            name
            for (kind, name), item in everything.items()
            if kind == "Service" and selector <= item["metadata"]["labels"].items()
        ]
        assert chosen == [service]
        ports = {port["name"] for port in everything["Service", service]["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} == ports
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["tlsConfig"] == {
        "serverName": "jobset-metrics-service.jobset-system.svc",
        "ca": {"secret": {"name": "jobset-metrics-server-cert", "key": "ca.crt"}},
    }
    (bound,) = everything["ClusterRoleBinding", "jobset-prometheus-metrics-reader"]["subjects"]
    assert (bound["name"], bound["namespace"]) == ("prometheus-k8s", "monitoring")
    own = offline.render({"prometheus": {"enable": True}})
    (endpoint,) = own["ServiceMonitor", "jobset-metrics-service-monitor"]["spec"]["endpoints"]
    assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}


def test_parts_can_be_omitted(offline):
    """Webhooks, leader election, the policy, the account, and the right to create pods."""
    rendered = offline.render(
        {
            "webhook": {"enable": False},
            "controller": {"leaderElection": {"enable": False}},
            "agent": {"policy": {"enable": False}},
            "inPlaceRestart": {"replacePods": False},
            "serviceAccount": {"create": False, "name": "own"},
        }
    )
    assert sorted(rendered) == [
        ("ClusterRole", "jobset-controller"),
        ("ClusterRole", "jobset-jobset-editor-role"),
        ("ClusterRole", "jobset-jobset-viewer-role"),
        ("ClusterRole", "jobset-metrics-reader"),
        ("ClusterRole", "jobset-proxy-role"),
        ("ClusterRoleBinding", "jobset-controller"),
        ("ClusterRoleBinding", "jobset-proxy-rolebinding"),
        CONFIG_MAP,
        DEPLOYMENT,
        ("Role", "jobset-leader-election-role"),
        ("RoleBinding", "jobset-leader-election-rolebinding"),
        ("Service", "jobset-metrics-service"),
    ]
    (subject,) = rendered["ClusterRoleBinding", "jobset-controller"]["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "own", "namespace": "jobset-system"}
    made = parsed(rendered)
    assert not made["leaderElection.leaderElect"]
    (container,) = rendered[DEPLOYMENT]["spec"]["template"]["spec"]["containers"]
    assert "--webhooks" not in container["args"]


@pytest.mark.parametrize(
    ("release", "values", "prefix"),
    [
        ("jobset", {}, "jobset"),
        ("my-jobset-2", {}, "my-jobset-2"),
        ("gangs", {}, "gangs-jobset"),
        ("gangs", {"nameOverride": "groups"}, "gangs-groups"),
        ("gangs", {"fullnameOverride": "x"}, "x"),
        ("9.lives", {}, "jobset-9-lives-jobset"),
        ("r" * 53, {}, "r" * 20),
    ],
)
def test_names_are_valid_for_any_release(offline, release, values, prefix):
    """Names and labels are valid for all kinds of objects."""
    rendered = offline.render({**EVERYTHING, **values}, release=release, namespace="elsewhere")
    fixed = ("jobset-mutating-webhook", "jobset-validating-webhook")
    fixed += ("jobset-agent", "coscheduler-queue.")
    for (kind, name), document in rendered.items():
        assert name.startswith((prefix, *fixed)), kind
        assert len(name) <= 63 or "Role" in kind
        labels = document["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == release
        assert labels["team"] == "training"
    selectors = []
    for (kind, _), document in rendered.items():
        if kind == "Deployment":
            selectors.append(document["spec"]["selector"]["matchLabels"])
            labels = document["spec"]["template"]["metadata"]["labels"]
            assert selectors[-1].items() <= labels.items()
            assert labels["team"] == "training"
    for (kind, _), document in rendered.items():
        spec = document.get("spec", {})
        if kind == "Service":
            assert spec["selector"] in selectors
        if kind in {"PodDisruptionBudget", "NetworkPolicy"}:
            assert (spec.get("selector") or spec["podSelector"])["matchLabels"] in selectors
    services = {name for kind, name in rendered if kind == "Service"}
    for kind in ("Mutating", "Validating"):
        found = rendered[
            f"{kind}WebhookConfiguration", f"jobset-{kind.lower()}-webhook-configuration"
        ]
        for webhook in found["webhooks"]:
            service = webhook["clientConfig"]["service"]
            assert service["name"] in services
            assert service["namespace"] == "elsewhere"


def test_values_of_other_charts_are_accepted(offline):
    """Numbers as annotations, and names of pull secrets."""
    values = {
        "controller": {"annotations": {"port": 8443}, "podAnnotations": {"scrape": True}},
        "image": {"pullSecrets": ["pull"]},
        "serviceAccount": {"annotations": {"number": 12345678}},
        "kubernetesClusterDomain": "cluster.local",
    }
    made = offline.render(values)
    template = made[DEPLOYMENT]["spec"]["template"]
    account = made["ServiceAccount", "jobset-controller"]
    assert made[DEPLOYMENT]["metadata"]["annotations"] == {"port": "8443"}
    assert template["metadata"]["annotations"]["scrape"] == "true"
    assert template["spec"]["imagePullSecrets"] == account["imagePullSecrets"] == [{"name": "pull"}]
    assert account["metadata"]["annotations"] == {"number": "12345678"}


REFUSED = [
    ({"controller": {"replicas": "two"}}, "/controller/replicas"),
    (
        {"controller": {"resources": {"limits": {"cpu": "many"}}}},
        "/controller/resources/limits/cpu",
    ),
    ({"controller": {"leaderElection": {"leaseDuration": 15}}}, "/leaderElection/leaseDuration"),
    ({"controller": {"podDisruptionBudget": {"maxUnavailable": -1}}}, "/maxUnavailable"),
    ({"controller": {"logLevel": "loud"}}, "/controller/logLevel"),
    (
        {"controller": {"topologySpreadConstraints": [{"maxSkew": 1}]}},
        "/topologySpreadConstraints/0",
    ),
    ({"image": {"tag": "a:b"}}, "/image/tag"),
    ({"image": {"registry": "REGISTRY"}}, "/image/registry"),  # copied from the README as it is
    ({"image": {"repository": ""}}, "add --set image.registry=REGISTRY; for images"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"imagePullSecrets": [{"secret": "name"}]}, "/imagePullSecrets/0"),
    ({"featureGates": {"Flying": True}}, "'Flying' not allowed"),
    ({"featureGates": {"TLSOptions": False}}, "/featureGates/TLSOptions"),
    ({"tls": {"minVersion": "VersionTLS11"}}, "/tls/minVersion"),
    ({"certManager": {"issuerRef": {"kind": "ClusterIssuer"}}}, "/certManager/issuerRef"),
    ({"commonLabels": {"a": 1}}, "/commonLabels/a"),
    ({"agent": {"namespaces": ["Not_A_Name"]}}, "/agent/namespaces/0"),
    ({"webhook": {"port": 0}}, "/webhook/port"),
    ({"coscheduling": {"backend": "magic"}}, "/coscheduling/backend"),
    (
        {"controller": {"replicas": 2, "leaderElection": {"enable": False}}},
        "controller.leaderElection.enable: must be true",
    ),
    (
        {"tls": {"minVersion": "VersionTLS13", "cipherSuites": ["TLS_AES_128_GCM_SHA256"]}},
        "tls.cipherSuites: must be empty",
    ),
    (
        {"webhook": {"enable": False}, "coscheduling": {"admission": "webhook"}},
        "coscheduling.admission: must not be webhook",
    ),
    ({"coscheduler": {"mode": "third"}}, "/coscheduler/mode"),
    ({"controller": {"shards": 65}}, "/controller/shards"),
    ({"controller": {"shards": 3, "replicas": 2}}, "controller.replicas: must be at least"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_wrong_value_is_refused(offline, values, message):
    """The message names the field."""
    assert message in offline.refused("template", "r", str(CHART), values=values)


# -- the schema --------------------------------------------------------------------------------------


def resolved(schema, node):
    """Return a node of the schema, or the definition that it refers to."""
    name = node.get("$ref")
    return schema["definitions"][name.rpartition("/")[2]] if name else node


def disagreements(schema, node, values, path=""):
    """Return values without a schema, and the reverse; parts of Kubernetes' types are skipped."""
    node = resolved(schema, node)
    properties = node.get("properties")
    if properties is None or not isinstance(values, dict) or not values:
        return []
    optional = {"global", "claims", "limits", "nodeAffinity", "podAffinity", "podAntiAffinity"}
    optional |= {"timeoutSeconds", "failureThreshold", "successThreshold"}
    found = [f"{path}/{name}" for name in (properties.keys() ^ values.keys()) - optional]
    for name in properties.keys() & values.keys():
        found += disagreements(schema, properties[name], values[name], f"{path}/{name}")
    return found


def test_schema_has_the_values_and_no_others():
    """Each value of values.yaml is in the schema, and the reverse."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert disagreements(schema, schema, values) == []


def test_release_is_limited_to_its_namespaces(offline):
    """Rights, webhooks and the manager are limited, and no name is that of another release."""
    made = offline.render({"controller": {"namespaces": ["a", "b"]}}, release="research")
    everywhere = offline.render({})

    def named(objects, kind):
        return {name for found, name in objects if found == kind}

    deployment = made["Deployment", "research-jobset-controller"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--namespaces=a,b" in container["args"]
    bindings = (item for (kind, _), item in made.items() if kind == "ClusterRoleBinding")
    bound = {binding["roleRef"]["name"] for binding in bindings}
    rules = [
        rule
        for (kind, name), role in made.items()
        if kind == "ClusterRole" and name in bound
        for rule in role["rules"]
    ]
    assert not [rule for rule in rules if {"pods", "jobs", "jobsets"} & set(rule["resources"])]
    assert {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]} in rules
    selector = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    for kind in ("Mutating", "Validating"):
        full = f"{kind}WebhookConfiguration"
        (name,) = named(made, full)
        assert name not in named(everywhere, full)
        for webhook in made[full, name]["webhooks"]:
            assert webhook["namespaceSelector"] == {"matchExpressions": [selector]}
        field = f"internalCertManagement.{kind.lower()}ConfigurationName"
        assert parsed(made)[field] == name
        assert [name] in [rule.get("resourceNames") for rule in rules]


@pytest.mark.parametrize("name", ["Team", "a.b", "", "x" * 64])
def test_invalid_namespace_is_refused(offline, name):
    """An impossible name is refused by Helm, before a manager that would not start."""
    values = {"controller": {"namespaces": [name]}}
    assert "namespaces" in offline.refused("template", "r", str(CHART), values=values)
