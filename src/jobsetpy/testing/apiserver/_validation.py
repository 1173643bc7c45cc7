"""Validation of an object's content, as far as controllers encounter it.

It is not a schema: it has the refusals that a program under test is most likely to cause. The
contract suite compares them with the real server's. Templates of workloads need no images here.
Objects created by a test through ``World.create`` are not validated, so that they need only the
fields relevant to the test.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from jobsetpy.api import structural_schema
from jobsetpy.api.structural_schema import (
    Cause,
    bad_value,
    duplicate,
    forbidden,
    required,
    unsupported,
)
from jobsetpy.testing.apiserver import _answers as answers
from jobsetpy.testing.apiserver._kinds import Json, Kind

_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_KEY: Final = re.compile(f"(?P<prefix>{_SUBDOMAIN}/)?(?P<name>{_NAME})")
_LABEL_VALUE: Final = re.compile(f"({_NAME})?")
_LABEL_LENGTH: Final = 63
_PREFIX_LENGTH: Final = 253


def check_types(kind: Kind, obj: Json, *, patch: bool = False) -> None:
    """Reject values whose JSON type differs from that of the field.

    Args:
        kind: the kind.
        obj: the object as received, or as patched.
        patch: the object is the result of a patch.

    Raises:
        StatusError: 400; 422 for a patch.
    """
    meta = obj.get("metadata") or {}
    maps = [
        ("metadata.labels", meta.get("labels")),
        ("metadata.annotations", meta.get("annotations")),
    ]
    if kind.info.kind == "ConfigMap" and not kind.info.group:
        maps.append(("data", obj.get("data")))
    for path, value in maps:
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise _cannot_decode(kind, obj, (path, "map[string]string", value), patch=patch)
        for each in value.values():
            if not isinstance(each, str):
                raise _cannot_decode(kind, obj, (path, "string", each), patch=patch)


def _cannot_decode(
    kind: Kind, obj: Json, found: tuple[str, str, Any], *, patch: bool
) -> answers.StatusError:
    path, wanted, value = found
    sort = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}.get(
        type(value), "object"
    )
    info = kind.info
    why = f"json: cannot unmarshal {sort} into Go struct field {path} of type {wanted}"
    if patch:
        name = (obj.get("metadata") or {}).get("name", "")
        return answers.invalid(info, name, [bad_value("patch", path, why)])
    message = f'{info.kind} in version "{info.version}" cannot be handled as a {info.kind}: {why}'
    return answers.bad_request(message)


def check(kind: Kind, new: Json, old: Json | None = None, subresource: str = "") -> None:
    """Validate the result of a write.

    Args:
        kind: the kind.
        new: the new object, with defaults.
        old: the current object; ``None`` for a create.
        subresource: "" or the written subresource.

    Raises:
        StatusError: 422 with every cause.
    """
    causes = [*_metadata(new["metadata"])]
    rules = _RULES.get((kind.info.group, kind.info.kind))
    if rules is not None and not subresource:
        on_create, on_update = rules
        causes += on_create(new) if old is None else on_update(old, new)
    if kind.schema is not None:
        causes += structural_schema.problems(kind.schema, new)
    if causes:
        name = new["metadata"].get("name", "")
        raise answers.invalid(kind.info, name, causes)


def _metadata(meta: Json) -> Iterator[Cause]:
    for key, value in (meta.get("labels") or {}).items():
        yield from _key("metadata.labels", key)
        if len(value) > _LABEL_LENGTH or not _LABEL_VALUE.fullmatch(value):
            yield bad_value("metadata.labels", value, "a valid label must be at most 63 characters")
    for key in meta.get("annotations") or {}:
        yield from _key("metadata.annotations", key.lower())


def _key(field: str, key: str) -> Iterator[Cause]:
    found = _KEY.fullmatch(key)
    if (
        found is None
        or len(found["name"]) > _LABEL_LENGTH
        or len(found["prefix"] or "") > _PREFIX_LENGTH + 1
    ):
        yield bad_value(field, key, "name part must consist of alphanumeric characters, '-', '_'")


# -- pods ------------------------------------------------------------------------------------------


def _pod_spec(
    spec: Json, field: str, policies: tuple[str, ...], *, images: bool = False
) -> Iterator[Cause]:
    containers = spec.get("containers")
    if not containers:
        yield required(f"{field}.containers")
    seen: set[str] = set()
    for part in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(part) or ()):
            at = f"{field}.{part}[{number}]"
            name = container.get("name")
            if not name:
                yield required(f"{at}.name")
            elif name in seen:
                yield duplicate(f"{at}.name", name)
            seen.add(name)
            if images and not container.get("image"):
                yield required(f"{at}.image")
    policy = spec.get("restartPolicy", policies[0])
    if policy not in policies:
        known = ", ".join(json.dumps(each) for each in policies)
        yield unsupported(f"{field}.restartPolicy", policy, known)


def _new_pod(new: Json) -> Iterator[Cause]:
    policies = ("Always", "OnFailure", "Never")
    yield from _pod_spec(new.get("spec") or {}, "spec", policies, images=True)


_MAY_CHANGE: Final = frozenset(
    {"activeDeadlineSeconds", "schedulingGates", "terminationGracePeriodSeconds", "tolerations"}
)
_WHILE_GATED: Final = frozenset({"nodeSelector", "affinity"})


def _fixed_part(spec: Json, may_change: AbstractSet[str]) -> Json:
    fixed = {name: value for name, value in spec.items() if name not in may_change}
    for part in ("containers", "initContainers"):
        if part in fixed:
            fixed[part] = [{**each, "image": None} for each in fixed[part] or ()]
    return fixed


def _changed_pod(old: Json, new: Json) -> Iterator[Cause]:
    before, after = old.get("spec") or {}, new.get("spec") or {}
    may_change = _MAY_CHANGE | (_WHILE_GATED if before.get("schedulingGates") else set())
    if _fixed_part(before, may_change) != _fixed_part(after, may_change):
        yield forbidden(
            "spec",
            "pod updates may not change fields other than images, tolerations and deadlines",
        )
    gates = [gate["name"] for gate in before.get("schedulingGates") or ()]
    for gate in after.get("schedulingGates") or ():
        if gate["name"] not in gates:
            yield forbidden(
                "spec.schedulingGates", "only deletion is allowed, but found new scheduling gate"
            )


# -- workloads -------------------------------------------------------------------------------------


def _new_deployment(new: Json) -> Iterator[Cause]:
    spec = new.get("spec") or {}
    selector = spec.get("selector") or {}
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not selector:
        yield required("spec.selector")
    wanted = selector.get("matchLabels") or {}
    if not selector or not wanted.items() <= labels.items():
        why = "`selector` does not match template `labels`"
        yield bad_value("spec.template.metadata.labels", labels, why)
    yield from _pod_spec(template.get("spec") or {}, "spec.template.spec", ("Always",))


def _changed_deployment(old: Json, new: Json) -> Iterator[Cause]:
    yield from _new_deployment(new)
    selector = (new.get("spec") or {}).get("selector")
    if (old.get("spec") or {}).get("selector") != selector:
        yield bad_value("spec.selector", selector, "field is immutable")


def _new_job(new: Json) -> Iterator[Cause]:
    template = (new.get("spec") or {}).get("template") or {}
    spec = template.get("spec") or {}
    if "restartPolicy" not in spec:
        text = 'valid values: "OnFailure", "Never"'
        yield required("spec.template.spec.restartPolicy", text)
    yield from _pod_spec(spec, "spec.template.spec", ("Never", "OnFailure"))


def _changed_job(old: Json, new: Json) -> Iterator[Cause]:
    before, after = old.get("spec") or {}, new.get("spec") or {}
    for field in ("selector", "completionMode"):
        if before.get(field) != after.get(field):
            yield bad_value(f"spec.{field}", after.get(field), "field is immutable")
    templates = [copy.deepcopy(spec.get("template") or {}) for spec in (before, after)]
    if before.get("suspend"):
        for template in templates:
            _without_scheduling(template)
    if templates[0] != templates[1]:
        yield bad_value("spec.template", after.get("template"), "field is immutable")


def _without_scheduling(template: Json) -> None:
    """Remove the fields of a Job's template that may be changed while the Job is suspended."""
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    for field in ("labels", "annotations"):
        meta.pop(field, None)
    for field in ("nodeSelector", "affinity", "tolerations", "schedulingGates"):
        spec.pop(field, None)
    for part in ("containers", "initContainers"):
        for container in spec.get(part) or ():
            container.pop("resources", None)
    template.pop("metadata", None)


_OnCreate = Callable[[Json], Iterator[Cause]]
_OnUpdate = Callable[[Json, Json], Iterator[Cause]]

_RULES: Final[Mapping[tuple[str, str], tuple[_OnCreate, _OnUpdate]]] = {
    ("", "Pod"): (_new_pod, _changed_pod),
    ("apps", "Deployment"): (_new_deployment, _changed_deployment),
    ("batch", "Job"): (_new_job, _changed_job),
}
