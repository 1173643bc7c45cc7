"""SharedConfiguration: ConfigMaps and Secrets of one namespace, copied into namespaces by labels.

cd examples/controllers
jobsetpy crds shared_configuration:SharedConfiguration | kubectl apply -f -
jobsetpy run shared_configuration:setup

Originals are the objects labelled example.com/shared=original in the namespace of the originals.
"""

from contextlib import suppress
from typing import Any, ClassVar

import attrs

from jobsetpy import runtime as rt

NAME = "shared-configuration"
SHARED = "example.com/shared"
KINDS = {"ConfigMap": rt.ConfigMap, "Secret": rt.Secret}


@rt.model
class Spec:
    originals: str = rt.field(
        default="", required=True, min_length=1, description="Namespace of the originals."
    )
    namespaces: rt.LabelSelector = rt.field(
        default=rt.LabelSelector(), description="Labels of the namespaces that get copies."
    )


@rt.model
class Status:
    copies: int = 0
    conditions: tuple[rt.Condition, ...] = rt.field(default=(), map_keys=("type",))


@rt.resource("example.com", "v1", "SharedConfiguration", "sharedconfigurations", namespaced=False)
@rt.model
class SharedConfiguration:
    """ConfigMaps and Secrets that many namespaces have a copy of."""

    RESOURCE: ClassVar[rt.ResourceInfo]
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    spec: Spec = Spec()
    status: Status = Status()


def content(obj: rt.ConfigMap | rt.Secret) -> dict[str, Any]:
    return {name: value for name, value in rt.to_json(obj).items() if name != "metadata"}


@attrs.frozen
class Copies:
    """Keep copies of the originals in the selected namespaces, and delete all others."""

    client: rt.Client
    namespaces: rt.Store[rt.Namespace]
    shared: dict[str, rt.Store[Any]]

    async def reconcile(self, config: SharedConfiguration) -> rt.Result:
        spec, refused = config.spec, []
        targets = {
            each.metadata.name
            for each in self.namespaces.list()
            if each.metadata.name != spec.originals
            and each.metadata.deletion_timestamp is None
            and spec.namespaces.matches(each.metadata.labels)
        }
        wanted = {
            (kind, namespace, each.metadata.name): content(each)
            for kind, store in self.shared.items()
            for each in store.list(spec.originals)
            if each.metadata.labels.get(SHARED) == "original"
            for namespace in targets
        }
        present = {
            (kind, each.metadata.namespace, each.metadata.name): content(each)
            for kind, store in self.shared.items()
            for each in store.by_index(rt.OWNER_UID, config.metadata.uid)
        }
        for kind, namespace, name in present.keys() - wanted.keys():
            with suppress(rt.NotFoundError):
                await self.client.delete(KINDS[kind], namespace, name)
        for at, body in sorted(wanted.items()):
            kind, namespace, name = at
            if present.get(at) != body:
                body = {"metadata": {"labels": {SHARED: "copy"}}, **body}
                try:
                    await rt.create_or_apply(
                        self.client,
                        KINDS[kind],
                        namespace,
                        name,
                        body,
                        owner=NAME,
                        controller=config,
                    )
                except (rt.ConflictError, rt.ForbiddenError, rt.InvalidError) as error:
                    refused.append(str(error))

        def seen(now: SharedConfiguration) -> Status:
            reason, text = ("Refused", "; ".join(refused)[:1000]) if refused else ("AllCopied", "")
            conditions = rt.set_condition(
                now.status.conditions, "Copied", not refused, reason, text
            )
            return Status(copies=len(wanted) - len(refused), conditions=conditions)

        await rt.patch_status(self.client, config, seen)
        return rt.Result.requeue_after(60) if refused else rt.Result.done()


def setup(manager: rt.Manager) -> None:
    configs, namespaces = manager.informer(SharedConfiguration), manager.informer(rt.Namespace)
    shared = {
        kind: manager.informer(cls, label_selector=SHARED, indexes=[rt.OWNER_UID])
        for kind, cls in KINDS.items()
    }
    all_of_them = rt.enqueue_mapped(lambda _: [each.metadata.key for each in configs.store.list()])
    watches = [
        rt.Watch(each, all_of_them, debounce_s=0.2) for each in (namespaces, *shared.values())
    ]
    stores = {kind: informer.store for kind, informer in shared.items()}
    reconcile = Copies(manager.client, namespaces.store, stores).reconcile
    manager.add(rt.controller_for(configs, reconcile, name=NAME, watches=watches))
