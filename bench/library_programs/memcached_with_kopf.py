"""examples/controllers/memcached.py on kopf, in kopf's usual style, with the client `kubernetes`.

kubectl apply -f memcached_with_kopf.yaml
kopf run --standalone -n NAMESPACE memcached_with_kopf.py
"""

import datetime as dt

import kopf
import kubernetes

ADDRESSES = "memcached-addresses"
PORT = 11211
GROUP, VERSION, PLURAL = "example.com", "v1", "memcacheds"
LABELS = {"app.kubernetes.io/name": "memcached"}


@kopf.on.startup()
def configure(**_):
    try:
        kubernetes.config.load_incluster_config()
    except kubernetes.config.ConfigException:
        kubernetes.config.load_kube_config()


def labels_of(name):
    return {**LABELS, "app.kubernetes.io/instance": name}


def deployment_of(name, spec):
    container = {
        "name": "memcached",
        "image": "memcached:1.6",
        "args": [f"--memory-limit={spec['memoryMb']}"],
        "ports": [{"containerPort": PORT, "name": "memcached", "protocol": "TCP"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels_of(name)},
        "spec": {
            "replicas": spec["size"],
            "selector": {"matchLabels": labels_of(name)},
            "template": {
                "metadata": {"labels": labels_of(name)},
                "spec": {"containers": [container]},
            },
        },
    }


def service_of(name):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels_of(name)},
        "spec": {
            "selector": labels_of(name),
            "ports": [{"port": PORT, "targetPort": "memcached"}],
        },
    }


def apply(call, name, namespace, body):
    return call(
        name,
        namespace,
        body,
        field_manager="memcached",
        force=True,
        _content_type="application/apply-patch+yaml",
    )


def enlist(core, namespace, data):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ADDRESSES}}
    try:
        core.patch_namespaced_config_map(ADDRESSES, namespace, {"data": data})
    except kubernetes.client.ApiException as error:
        if error.status != 404:
            raise
        apply(core.patch_namespaced_config_map, ADDRESSES, namespace, body)
        core.patch_namespaced_config_map(ADDRESSES, namespace, {"data": data})


def keep(name, namespace, spec, body):
    deployment, service = deployment_of(name, spec), service_of(name)
    kopf.adopt([deployment, service], owner=body)
    apps, core = kubernetes.client.AppsV1Api(), kubernetes.client.CoreV1Api()
    made = apply(apps.patch_namespaced_deployment, name, namespace, deployment)
    apply(core.patch_namespaced_service, name, namespace, service)
    enlist(core, namespace, {name: f"{name}.{namespace}.svc:{PORT}"})
    return made


def status_of(old, size, ready):
    available = "True" if ready >= size else "False"
    before = next((c for c in old.get("conditions", ()) if c["type"] == "Available"), None)
    since = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if before and before["status"] == available:
        since = before["lastTransitionTime"]
    condition = {
        "type": "Available",
        "status": available,
        "reason": "AllReady" if ready >= size else "NotReady",
        "message": f"{ready} of {size} servers are ready",
        "lastTransitionTime": since,
    }
    return {"ready": ready, "conditions": [condition]}


@kopf.on.create(GROUP, VERSION, PLURAL)
@kopf.on.update(GROUP, VERSION, PLURAL, field="spec")
@kopf.on.resume(GROUP, VERSION, PLURAL)
def changed(name, namespace, spec, status, body, patch, **_):
    made = keep(name, namespace, spec, body)
    new = status_of(status, spec["size"], made.status.ready_replicas or 0)
    if {key: status.get(key) for key in new} != new:
        patch.status.update(new)


@kopf.on.delete(GROUP, VERSION, PLURAL)
def deleted(name, namespace, **_):
    core = kubernetes.client.CoreV1Api()
    try:
        core.patch_namespaced_config_map(ADDRESSES, namespace, {"data": {name: None}})
    except kubernetes.client.ApiException as error:
        if error.status != 404:
            raise


def reconcile(namespace, name):
    custom = kubernetes.client.CustomObjectsApi()
    where = (GROUP, VERSION, namespace, PLURAL, name)
    try:
        owner = custom.get_namespaced_custom_object(*where)
    except kubernetes.client.ApiException as error:
        if error.status == 404:
            return
        raise
    if owner["metadata"].get("deletionTimestamp"):
        return
    made = keep(name, namespace, owner["spec"], owner)
    old = owner.get("status", {})
    new = status_of(old, owner["spec"]["size"], made.status.ready_replicas or 0)
    if {key: old.get(key) for key in new} != new:
        custom.patch_namespaced_custom_object_status(*where, {"status": new})


@kopf.on.event("apps", "v1", "deployments", labels=LABELS)
@kopf.on.event("v1", "services", labels=LABELS)
def owned_changed(namespace, labels, **_):
    reconcile(namespace, labels["app.kubernetes.io/instance"])


@kopf.on.event("v1", "configmaps", when=lambda name, **_: name == ADDRESSES)
def addresses_changed(event, namespace, body, **_):
    for name in body.get("data", {}) if event["type"] == "DELETED" else ():
        reconcile(namespace, name)
