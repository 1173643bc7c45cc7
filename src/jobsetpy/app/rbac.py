"""Rules of roles from the requests that code makes.

Every request goes through the typed client or through an informer, and names the class of the
objects it is about. This reads those calls out of the source: nothing that no line of code needs,
and nothing forgotten. Where a call's class cannot be inferred, it fails rather than leave some out.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pkgutil
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import attrs

from jobsetpy import runtime
from jobsetpy.api.meta import ResourceInfo

METHODS = {
    "get": ("get",),
    "list_page": ("list",),
    "create": ("create",),
    "create_subresource": ("create",),
    "merge_patch": ("patch",),
    "json_patch": ("patch",),
    "apply": ("patch",),  # of objects that are there; see CREATES
    "replace": ("update",),
    "delete": ("delete",),
    "watch": ("watch",),
    "informer": ("list", "watch"),
}
"""Verbs of the client's methods."""
CREATES = {"apply": ("create", "patch")}
"""Methods that may also create objects, in code that is not known to change only existing ones."""
OF_METHOD = {"GET": "get", "PATCH": "patch", "POST": "create", "DELETE": "delete"}
PATH = re.compile(
    r"method='(?P<method>\w+)', path=f'/api/v1/namespaces/\{[^}]+\}/(?P<plural>\w+)/\{[^}]+\}"
    r"(?P<subresource>/\w+)?'"
)
METHOD = re.compile(r"method='(\w+)'")
OPEN_TO_ALL = re.compile(
    r"path ?= ?('/version'|f'/apis/\{\w+\}/\{\w+\}'|f'/openapi/v3/apis/\{[\w.]+\}')"
)
"""Version, discovery and schemas, which every account may read."""
HELPERS: tuple[tuple[object, int, tuple[str, ...]], ...] = (
    (runtime.list_objects, 1, ("list",)),
    (runtime.create_or_apply, 1, ("get", "create", "patch")),
    (runtime.owner_reference_to, 0, ("update/finalizers",)),
    (runtime.patch_status, 1, ("get", "patch/status")),
)
"""Functions of ``jobsetpy.runtime``: the argument with the objects' class, verbs, subresources."""
_FINALIZER_WRITES = ("guard", "ensure", "remove")
ORDER = ("get", "list", "watch", "create", "update", "patch", "delete")
EMPTY = '""'
MAKES_NEW = {"list", "watch", "create"}  # cannot be limited to objects of a name

Function = ast.FunctionDef | ast.AsyncFunctionDef
Seen = frozenset[tuple[ast.AST, str]]


@attrs.frozen(order=True)
class Need:
    """One request that some module makes.

    Args:
        group: API group.
        resource: plural, with ``/status`` and the like for subresources.
        verb: as roles name it.
        module: who asks.
        name: of the only object that is asked for; "" for any.
        namespaced: whether the objects are in namespaces.
    """

    group: str
    resource: str
    verb: str
    module: str
    name: str = ""
    namespaced: bool = True


class UnknownClassError(Exception):
    """A call whose class of objects cannot be read from the source."""


def module_names(pattern: str) -> list[str]:
    """The modules that a name stands for, sorted: ``package.*`` is all modules of a package."""
    if not pattern.endswith(".*"):
        return [pattern]
    package = importlib.import_module(pattern.removesuffix(".*"))
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return sorted(each.name for each in found if not each.ispkg)


@cache
def needs_of(module_name: str, *, applies_new: bool = False) -> frozenset[Need]:
    """Every request of a module.

    Args:
        module_name: of a module that can be imported.
        applies_new: whether what it applies may not be there yet.

    Raises:
        UnknownClassError: a request's class of objects cannot be inferred.
    """
    module = importlib.import_module(module_name)
    path = Path(inspect.getfile(module))
    return frozenset(Reader(module, path, applies_new=applies_new).needs())


def resources_of(value: object) -> Iterator[ResourceInfo]:
    """Yield the resources of a class, of an annotation, or of a collection of classes."""
    if isinstance(found := getattr(value, "RESOURCE", None), ResourceInfo):
        yield found
        return
    parts = value.values() if isinstance(value, Mapping) else value
    for part in parts if isinstance(parts, Collection) else get_args(value):
        if not isinstance(part, str):
            yield from resources_of(part)


class Reader:
    """Reads the requests out of one module's source."""

    def __init__(self, module: ModuleType, path: Path, *, applies_new: bool = False) -> None:
        self.module = module
        self.methods = {**METHODS, **CREATES} if applies_new else METHODS
        nodes = list(ast.walk(ast.parse(path.read_text())))
        self.calls = [node for node in nodes if isinstance(node, ast.Call)]
        self.parents = {each: node for node in nodes for each in ast.iter_child_nodes(node)}

    def needs(self) -> Iterator[Need]:
        """Every request, once or more often."""
        for call in self.calls:
            yield from self._helper(call)
            if not isinstance(call.func, ast.Attribute):
                continue
            method, receiver = call.func.attr, ast.unparse(call.func.value)
            if method == "informer" or receiver.endswith("client") or self._names_a_kind(call):
                if method == "raw":
                    yield from self._raw(call)
                elif method in self.methods:
                    yield from self._typed(method, call)

    def _names_a_kind(self, call: ast.Call) -> bool:
        """Return True if the first argument of a client's call is a class of objects."""
        return len(call.args) > 1 and hasattr(self._value(call.args[0]), "RESOURCE")

    def _needs(self, about: ast.expr, *verbs: str) -> Iterator[Need]:
        """Yield requests for the objects of an expression; verbs are such as ``patch/status``."""
        kinds = self._kinds(about)
        if not kinds:
            text = f"of which kind is {ast.unparse(about)!r}? Annotate it"
            raise self._unknown(about, text)
        for kind in kinds:
            for each in verbs:
                verb, slash, subresource = each.partition("/")
                plural, where = kind.plural + slash + subresource, self.module.__name__
                yield Need(kind.group, plural, verb, where, namespaced=kind.namespaced)

    def _unknown(self, at: ast.expr, text: str) -> UnknownClassError:
        return UnknownClassError(f"{self.module.__name__}:{at.lineno}: {text}")

    def _typed(self, method: str, call: ast.Call) -> Iterator[Need]:
        subresource = ""
        for keyword in call.keywords:
            if keyword.arg == "subresource" and isinstance(keyword.value, ast.Constant):
                subresource = f"/{keyword.value.value!s}"
        if method == "create_subresource":
            if not isinstance(name := self._value(call.args[3]), str):
                raise self._unknown(call, "which subresource?")
            subresource = f"/{name}"
        yield from self._needs(call.args[0], *(verb + subresource for verb in self.methods[method]))

    def _helper(self, call: ast.Call) -> Iterator[Need]:
        """Requests of the functions of ``jobsetpy.runtime``."""
        called = self._value(call.func)
        for function, at, verbs in HELPERS:
            if called is function:
                yield from self._needs(call.args[at], *verbs)
        if called is runtime.create_or_apply:
            for keyword in call.keywords:
                if keyword.arg == "controller":
                    yield from self._needs(keyword.value, "update/finalizers")
        elif called is runtime.serve_webhooks:
            yield from self._webhooks(call)
        elif isinstance(call.func, ast.Attribute):
            receiver = self._value(call.func.value)
            if isinstance(receiver, runtime.Finalizer) and call.func.attr in _FINALIZER_WRITES:
                yield from self._needs(call.args[1], "get", "patch")
            elif call.func.attr == "recorder" and receiver is None:
                yield from needs_of("jobsetpy.controller._recorder")

    def _webhooks(self, call: ast.Call) -> Iterator[Need]:
        """Requests for the certificate of webhooks, about the objects that are named after them."""
        named = [self._value(each.value) for each in call.keywords if each.arg == "name"]
        if not named or not isinstance(named[0], str):
            raise self._unknown(call, "name= of serve_webhooks is no constant")
        names = {
            "secrets": [f"{named[0]}-webhooks"],
            "mutatingwebhookconfigurations": [named[0]],
            "validatingwebhookconfigurations": [named[0]],
        }
        for module in ("jobsetpy.serving.certificates", "jobsetpy.serving.webhook_certificates"):
            for need in needs_of(module):
                for name in names.get(need.resource, ()):
                    yield attrs.evolve(need, name=name)

    def _raw(self, call: ast.Call) -> Iterator[Need]:
        """A request without a class: to an object by its path, or a question of what is served."""
        text = ast.unparse(call)
        if found := PATH.search(text):
            resource = found["plural"] + (found["subresource"] or "")
            yield Need("", resource, OF_METHOD[found["method"]], self.module.__name__)
            return
        functions = [ast.unparse(each) for each in self._around(call)[:1]]
        asks = any("method='GET'" in each and OPEN_TO_ALL.search(each) for each in functions)
        if not asks or set(METHOD.findall(text)) - {"GET"}:
            raise self._unknown(call, text)

    # ---- kinds of expressions --------------------------------------------------------------------

    def _kinds(self, about: ast.expr, seen: Seen = frozenset()) -> set[ResourceInfo]:
        """Return the resources of classes and objects that an expression may stand for.

        Args:
            about: the expression, such as a class, an object, or a table of them.
            seen: local names that are being looked up, with their functions.
        """
        for known in self._value(about), self._hint(about):
            if found := set(resources_of(known)):
                return found
        match about:
            case ast.Name():
                return self._kinds_of_name(about, seen)
            case ast.Call():
                return self._kinds_of_result(about, seen)
            case ast.Attribute():
                return set()
            case ast.Subscript(value=table):
                return self._kinds(table, seen)
        parts = [each for each in ast.iter_child_nodes(about) if isinstance(each, ast.expr)]
        return set[ResourceInfo]().union(*(self._kinds(each, seen) for each in parts))

    def _kinds_of_name(self, name: ast.Name, seen: Seen) -> set[ResourceInfo]:
        for function in self._around(name):
            if (function, name.id) not in seen:
                more = seen | {(function, name.id)}
                values = (*_bound_to(name.id, function), *self._given(name.id, function))
                if found := set[ResourceInfo]().union(
                    *(self._kinds(each, more) for each in values)
                ):
                    return found
        return set()

    def _kinds_of_result(self, call: ast.Call, seen: Seen) -> set[ResourceInfo]:
        # A class that is named, as in client.get(Pod, ...), says more than the receiver.
        every = (call.func, *call.args)
        likely = [each for each in every if hasattr(self._value(each), "RESOURCE")]
        if isinstance(call.func, ast.Attribute):
            likely.append(call.func.value)
        # Functions of users may return other kinds than they are given.
        module = str(getattr(self._value(call.func), "__module__", ""))
        if module.partition(".")[0] in {"builtins", "jobsetpy"}:
            likely += call.args
        return next(filter(None, (self._kinds(each, seen) for each in likely)), set())

    def _value(self, expression: ast.AST) -> object:
        """Return the object of a name, or of a module's name; ``None`` if it cannot be inferred."""
        match expression:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return getattr(self.module, name, getattr(builtins, name, None))
            case ast.Attribute(value=holder, attr=name):
                return getattr(self._value(holder), name, None)
        return None

    def _hint(self, expression: ast.AST) -> object:
        """Return the annotation of a name, or of a field of a value; ``None`` without one."""
        match expression:
            case ast.Name(id="self"):
                cls = next(iter(self._around(expression, ast.ClassDef)), None)
                return None if cls is None else getattr(self.module, cls.name, None)
            case ast.Name(id=name):
                every = (node for each in self._around(expression) for node in ast.walk(each))
                return next((self._evaluated(text) for text in _annotations(every, name)), None)
            case ast.Attribute(value=holder, attr=name):
                owner = self._hint(holder)
                return get_type_hints(owner).get(name) if isinstance(owner, type) else None
        return None

    def _evaluated(self, annotation: ast.expr) -> object:
        text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
        try:
            found: object = eval(str(text), vars(self.module))  # noqa: S307 - the user's own module
        except Exception:  # noqa: BLE001 - such as a name for type checkers only
            return None
        return found

    def _around(self, node: ast.AST, kind: Any = Function) -> list[Any]:
        """Return the functions, or classes, that a node is in, the innermost first."""
        found, at = [], self.parents.get(node)
        while at is not None:
            if isinstance(at, kind):
                found.append(at)
            at = self.parents.get(at)
        return found

    def _given(self, name: str, function: Function) -> Iterator[ast.expr]:
        """Yield what callers give for a parameter, by its position."""
        parameters = [each.arg for each in function.args.args if each.arg != "self"]
        if name in parameters:
            at = parameters.index(name)
            for call in self.calls:
                method = getattr(call.func, "attr", None) or getattr(call.func, "id", None)
                if method == function.name and len(call.args) > at:
                    yield call.args[at]


def _bound_to(name: str, function: Function) -> Iterator[ast.expr]:
    """Yield the values of a local name, of assignments and loops."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pass
            case ast.Assign(targets=targets, value=value):
                values = [value] * len(targets)
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
                | ast.For(target=target, iter=value)
                | ast.AsyncFor(target=target, iter=value)
                | ast.comprehension(target=target, iter=value)
            ):
                targets, values = [target], [value]
            case _:
                continue
        for target, value in zip(targets, values, strict=False):
            if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(target)):
                yield value


def _annotations(nodes: Iterable[ast.AST], name: str) -> Iterator[ast.expr]:
    for node in nodes:
        match node:
            case (
                ast.arg(arg=found, annotation=ast.expr() as annotation)
                | ast.AnnAssign(target=ast.Name(id=found), annotation=annotation)
            ) if found == name:
                yield annotation


# ---- writing a role -----------------------------------------------------------------------------


def rule(at: tuple[str, str], verbs: Iterable[str], name: str) -> list[str]:
    """Return a rule as lines of YAML.

    Args:
        at: group and resource.
        verbs: in any order.
        name: of the only object; "" for any.
    """
    group, resource = at
    return [
        f"- apiGroups: [{group or EMPTY}]",
        f"  resources: [{resource}]",
        *([f"  resourceNames: [{name}]"] if name else []),
        f"  verbs: [{', '.join(verb for verb in ORDER if verb in set(verbs))}]",
    ]


ELECTION = ("jobsetpy.manager._leader", "jobsetpy.manager._manager")
_OWN = frozenset({("coordination.k8s.io", "leases"), ("", "secrets")})
"""Rules for the manager's own objects, in its own namespace."""


def manifests(
    modules: Iterable[str],
    *,
    name: str,
    namespace: str,
    watched: Iterable[str] = (),
    leader_elect: bool = False,
) -> str:
    """Return a service account and the roles that controllers need, as YAML.

    Args:
        modules: theirs; ``package.*`` is all modules of a package.
        name: of account and roles.
        namespace: where they run.
        watched: namespaces that they are confined to; empty for all.
        leader_elect: whether they stand for election.

    Raises:
        UnknownClassError: a request's class of objects cannot be inferred.
    """
    needs = {
        need
        for pattern in modules
        for module in module_names(pattern)
        for need in needs_of(module, applies_new=True)
    }
    own = {need for need in needs if (need.group, need.resource) in _OWN and need.name}
    everywhere = needs - own
    if leader_elect:
        own |= {need for module in ELECTION for need in needs_of(module)}
    homes = sorted(set(watched))
    confined = {need for need in everywhere if homes and need.namespaced}
    account = f"apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n"
    documents = [f"{account}  namespace: {namespace}\n"]
    for home in homes:
        documents += _role(name, home, namespace, confined)
    documents += _role(name, "", namespace, everywhere - confined)
    documents += _role(f"{name}-manager", namespace, namespace, own)
    return "---\n".join(documents)


def _role(name: str, home: str, namespace: str, needs: set[Need]) -> list[str]:
    """A role with its binding; of a namespace, or of the cluster if ``home`` is ""."""
    if not needs:
        return []
    kind = "Role" if home else "ClusterRole"
    head = [f"metadata:\n  name: {name}", *([f"  namespace: {home}"] if home else [])]
    rules: dict[tuple[str, str, str], set[Need]] = {}
    for need in needs:
        open_to_all = need.verb in MAKES_NEW  # cannot be limited to a name
        at = (need.group, need.resource, "" if open_to_all else need.name)
        rules.setdefault(at, set()).add(need)
    lines = ["rules:"]
    for (group, resource, of), asked in sorted(rules.items()):
        lines.append(f"# {', '.join(sorted({need.module for need in asked}))}")
        lines += rule((group, resource), {need.verb for need in asked}, of)
    api = "apiVersion: rbac.authorization.k8s.io/v1"
    bound = [
        "roleRef:",
        "  apiGroup: rbac.authorization.k8s.io",
        f"  kind: {kind}",
        f"  name: {name}",
        "subjects:",
        "- kind: ServiceAccount",
        f"  name: {name.removesuffix('-manager')}",
        f"  namespace: {namespace}",
    ]
    return [
        "\n".join([api, f"kind: {kind}", *head, *lines, ""]),
        "\n".join([api, f"kind: {kind}Binding", *head, *bound, ""]),
    ]
