"""Rules of roles from the requests that code makes.

Every request goes through the typed client or through an informer, and names the class of the
objects it is about. This reads those calls out of the source: nothing that no line of code needs,
and nothing forgotten. Where a call's class cannot be inferred, it fails rather than leave some out.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import get_args, get_origin, get_type_hints

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
    "apply_labels": ("patch",),
    "apply_annotations": ("patch",),
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
DISCOVERY = re.compile(r"path = f'/apis/\{\w+\}/\{\w+\}'")
_FINALIZER_WRITES = ("guard", "ensure", "remove")
ORDER = ("get", "list", "watch", "create", "update", "patch", "delete")
EMPTY = '""'
MAKES_NEW = {"list", "watch", "create"}  # cannot be limited to objects of a name


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


def resource_of(value: object) -> ResourceInfo | None:
    """Return the resource of a class; ``None`` for a class that represents no kind."""
    found = getattr(value, "RESOURCE", None)
    return found if isinstance(found, ResourceInfo) else None


def resources_in(annotation: object) -> Iterator[ResourceInfo]:
    """Yield the resources of the classes in an annotation such as ``type[Job] | type[Pod]``."""
    for part in get_args(annotation):
        if get_origin(annotation) is type and (kind := resource_of(part)):
            yield kind
        yield from resources_in(part)


def resources_of_fields(annotation: object) -> Iterator[ResourceInfo]:
    """Yield the resources of all classes in an annotation and in the fields of its classes."""
    if kind := resource_of(annotation):
        yield kind
    elif isinstance(annotation, type) and attrs.has(annotation):
        for part in get_type_hints(annotation).values():
            yield from resources_of_fields(part)
    else:
        for part in get_args(annotation):
            yield from resources_of_fields(part)


def _single(hint: object) -> object:
    """The one class of an annotation such as ``Pod | None``."""
    if resource_of(hint) is not None:
        return hint
    found = [part for part in get_args(hint) if resource_of(part) is not None]
    return found[0] if len(found) == 1 else None


def _names(target: ast.AST, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name


class Reader:
    """Reads the requests out of one module's source."""

    def __init__(self, module: ModuleType, path: Path, *, applies_new: bool = False) -> None:
        self.module = module
        self.methods = {**METHODS, **CREATES} if applies_new else METHODS
        self.within: dict[ast.AST, ast.ClassDef | None] = {}
        self.where = module.__name__
        self.tree = ast.parse(path.read_text())
        self.inside: dict[ast.AST, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self._note_functions(self.tree, [], None)

    def _note_functions(
        self,
        node: ast.AST,
        around: list[ast.FunctionDef | ast.AsyncFunctionDef],
        cls: ast.ClassDef | None,
    ) -> None:
        self.inside[node], self.within[node] = around, cls
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            around = [*around, node]
        elif isinstance(node, ast.ClassDef):
            cls = node
        for child in ast.iter_child_nodes(node):
            self._note_functions(child, around, cls)

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Every call of a method, with the method's name."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield node.func.attr, node

    def needs(self) -> Iterator[Need]:
        """Every request, once or more often."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield from self._helper(node)
        for method, call in self.calls():
            if not isinstance(call.func, ast.Attribute):
                continue
            receiver = ast.unparse(call.func.value)
            if method == "informer" or receiver.endswith("client") or self._names_a_kind(call):
                if method == "raw":
                    yield from self._raw(call)
                elif method in self.methods:
                    yield from self._typed(method, call)

    def _names_a_kind(self, call: ast.Call) -> bool:
        """Return True if the first argument of a client's call is a class of objects."""
        return len(call.args) > 1 and resource_of(self._value(call.args[0])) is not None

    def _need(self, kind: ResourceInfo, verb: str, subresource: str = "", name: str = "") -> Need:
        where = self.module.__name__
        return Need(kind.group, kind.plural + subresource, verb, where, name, kind.namespaced)

    def _typed(self, method: str, call: ast.Call) -> Iterator[Need]:
        subresource = ""
        for keyword in call.keywords:
            if keyword.arg == "subresource" and isinstance(keyword.value, ast.Constant):
                subresource = f"/{keyword.value.value!s}"
        if method == "create_subresource":
            subresource = f"/{self._value(call.args[3])!s}"
            if not isinstance(self._value(call.args[3]), str):
                raise UnknownClassError(f"{self.where}:{call.lineno}: which subresource?")
        for kind in self._kinds(call.args[0], call):
            for verb in self.methods[method]:
                yield self._need(kind, verb, subresource)

    def _helper(self, call: ast.Call) -> Iterator[Need]:
        """Requests of the functions of ``jobsetpy.runtime``."""
        called = self._value(call.func)
        if called is runtime.list_objects:
            yield from self._each(self._kinds(call.args[1], call), "list")
        elif called is runtime.create_or_apply:
            yield from self._each(self._kinds(call.args[1], call), "get", "create", "patch")
            for keyword in call.keywords:
                if keyword.arg == "controller":
                    yield self._need(self._kind_of(keyword.value, call), "update", "/finalizers")
        elif called is runtime.owner_reference_to:
            yield self._need(self._kind_of(call.args[0], call), "update", "/finalizers")
        elif called is runtime.patch_status:
            kind = self._kind_of(call.args[1], call)
            yield from (self._need(kind, "get"), self._need(kind, "patch", "/status"))
        elif called is runtime.serve_webhooks:
            yield from self._webhooks(call)
        elif isinstance(call.func, ast.Attribute):
            receiver = self._value(call.func.value)
            if isinstance(receiver, runtime.Finalizer) and call.func.attr in _FINALIZER_WRITES:
                yield from self._each({self._kind_of(call.args[1], call)}, "get", "patch")
            elif call.func.attr == "recorder" and receiver is None:
                yield from needs_of("jobsetpy.controller._recorder")

    def _each(self, kinds: Iterable[ResourceInfo], *verbs: str) -> Iterator[Need]:
        return (self._need(kind, verb) for kind in kinds for verb in verbs)

    def _webhooks(self, call: ast.Call) -> Iterator[Need]:
        """Requests for the certificate of webhooks, about the objects that are named after them."""
        named = [self._value(each.value) for each in call.keywords if each.arg == "name"]
        if not named or not isinstance(named[0], str):
            raise UnknownClassError(
                f"{self.where}:{call.lineno}: name= of serve_webhooks is no constant"
            )
        names = {
            "secrets": [f"{named[0]}-webhooks"],
            "mutatingwebhookconfigurations": [named[0]],
            "validatingwebhookconfigurations": [named[0]],
            "customresourcedefinitions": sorted(self._converted()),
        }
        for module in ("jobsetpy.serving.certificates", "jobsetpy.serving.webhook_certificates"):
            for need in needs_of(module):
                for name in names.get(need.resource, ()):
                    yield attrs.evolve(need, name=name)

    def _converted(self) -> Iterator[str]:
        """Names of the definitions whose versions are converted."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and self._value(node.func) is runtime.Conversion:
                for kind in self._kinds(node.args[0], node):
                    yield f"{kind.plural}.{kind.group}"

    def _value(self, expression: ast.AST) -> object:
        """Return the object of a name, or of a module's name; ``None`` if it cannot be inferred."""
        if isinstance(expression, ast.Constant):
            return expression.value
        if isinstance(expression, ast.Name):
            return getattr(self.module, expression.id, None)
        if isinstance(expression, ast.Attribute):
            holder = self._value(expression.value)
            return None if holder is None else getattr(holder, expression.attr, None)
        return None

    def _kind_of(self, expression: ast.expr, call: ast.AST) -> ResourceInfo:
        """The resource of an object.

        Raises:
            UnknownClassError: its class cannot be inferred.
        """
        kind = resource_of(self._class_of(expression, call))
        if kind is None:
            what = ast.unparse(expression)
            msg = f"{self.where}:{expression.lineno}: of which kind is {what!r}? Annotate it"
            raise UnknownClassError(msg)
        return kind

    def _class_of(self, expression: ast.AST, call: ast.AST) -> object:
        """The class of a value, by annotations and by what it is taken from."""
        if isinstance(expression, ast.Await):
            return self._class_of(expression.value, call)
        if isinstance(expression, ast.Call):
            return self._class_of_result(expression, call)
        if isinstance(expression, ast.Attribute):
            hint = self._hint_of(expression, call)
            return _single(hint)
        if not isinstance(expression, ast.Name):
            return None
        for function in reversed(self.inside[call]):
            for node in ast.walk(function):
                found = self._class_inferred_from(node, expression.id)
                if resource_of(found) is not None:
                    return found
        return None

    def _class_inferred_from(self, node: ast.AST, name: str) -> object:
        """Return the class of a name by its annotation or assignment."""
        match node:
            case ast.arg(arg=found, annotation=ast.expr() as annotation) if found == name:
                return _single(self._evaluated(annotation))
            case ast.AnnAssign(target=ast.Name(id=found), annotation=annotation) if found == name:
                return _single(self._evaluated(annotation))
            case (
                ast.Assign(targets=[ast.Name(id=found)], value=value)
                | ast.NamedExpr(target=ast.Name(id=found), value=value)
                | ast.For(target=ast.Name(id=found), iter=value)
                | ast.AsyncFor(target=ast.Name(id=found), iter=value)
            ) if found == name:
                return self._class_of(value, node)
            case _:
                return None

    def _class_of_result(self, made: ast.Call, call: ast.AST) -> object:
        """The class of what a call gives: of a store, of the client, of a helper."""
        called = self._value(made.func)
        if called in (runtime.create_or_apply, runtime.list_objects):
            return self._value(made.args[1])
        if called is runtime.patch_status:
            return self._class_of(made.args[1], call)
        if resource_of(called) is not None:
            return called
        if isinstance(made.func, ast.Attribute):
            if isinstance(self._value(made.func.value), runtime.Finalizer):
                return self._class_of(made.args[1], call)
            if made.args and resource_of(found := self._value(made.args[0])) is not None:
                return found  # client.get(Pod, ...)
            hint = self._hint_of(made.func.value, call)
            if get_origin(hint) is runtime.Store:
                return get_args(hint)[0]
        return None

    def _hint_of(self, expression: ast.AST, call: ast.AST) -> object:
        """The annotation of a name, or of a field of ``self``."""
        if isinstance(expression, ast.Attribute) and _names(expression.value, "self"):
            cls = self.within[call]
            owner = None if cls is None else getattr(self.module, cls.name, None)
            return get_type_hints(owner).get(expression.attr) if owner is not None else None
        if isinstance(expression, ast.Name):
            for function in reversed(self.inside[call]):
                for node in ast.walk(function):
                    if isinstance(node, ast.arg) and node.arg == expression.id and node.annotation:
                        return self._evaluated(node.annotation)
        return None

    def _evaluated(self, annotation: ast.expr) -> object:
        text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
        try:
            found: object = eval(str(text), vars(self.module))  # noqa: S307 - the user's own module
        except Exception:  # noqa: BLE001 - such as a name for type checkers only
            return None
        return found

    def _raw(self, call: ast.Call) -> Iterator[Need]:
        """A request without a class: to an object by its path, or a question of what is served."""
        text = ast.unparse(call)
        if found := PATH.search(text):
            verb = OF_METHOD[found["method"]]
            resource = found["plural"] + (found["subresource"] or "")
            yield Need("", resource, verb, self.where)
            return
        function = ast.unparse(self.inside[call][-1]) if self.inside[call] else ""
        if "method='POST'" in text and "/binding" in text:
            yield Need("", "pods/binding", "create", self.where)
        elif "method='GET', path='/version'" in function:
            return  # open to every account
        elif not ("method='GET'" in text and DISCOVERY.search(function)):  # the same
            raise UnknownClassError(f"{self.where}:{call.lineno}: {text}")

    def _kinds(self, argument: ast.expr, call: ast.Call) -> set[ResourceInfo]:
        if isinstance(argument, ast.Subscript):  # a table of classes, by kind
            argument = argument.value
        if of_class := resource_of(self._value(argument)):
            return {of_class}
        if isinstance(argument, ast.Name):
            known: object = getattr(self.module, argument.id, None)
            if isinstance(known, Mapping):
                return {kind for value in known.values() if (kind := resource_of(value))}
            for function in reversed(self.inside[call]):
                if found := self._in_function(argument.id, function):
                    return found
        elif isinstance(
            argument, ast.Attribute | ast.Call
        ):  # of a value: ``type(old)``, ``new.kind``
            for function in reversed(self.inside[call]):
                if found := self._in_values(function):
                    return found
        raise UnknownClassError(
            f"{self.where}:{call.lineno}: which kind is {ast.unparse(argument)!r}?"
        )

    def _in_values(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[ResourceInfo]:
        """The classes that the fields of a function's arguments speak of."""
        found: set[ResourceInfo] = set()
        for argument in function.args.args:
            if isinstance(argument.annotation, ast.Name):
                cls = getattr(self.module, argument.annotation.id, None)
                if isinstance(cls, type) and attrs.has(cls) and resource_of(cls) is None:
                    found |= set(resources_of_fields(cls))
        return found

    def _in_function(
        self,
        name: str,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        seen: frozenset[str] = frozenset(),
    ) -> set[ResourceInfo]:
        """Classes a local name may stand for: what callers give, or what a loop goes through."""
        parameters = [argument.arg for argument in function.args.args if argument.arg != "self"]
        found: set[ResourceInfo] = set()
        if name in parameters:
            at = parameters.index(name)
            for method, call in self.calls():
                own = function in self.inside[call]
                if method == function.name and len(call.args) > at:
                    argument = call.args[at]
                    if own and isinstance(argument, ast.Name) and argument.id == name:
                        continue
                    found |= self._kinds(argument, call)
            return found
        for value in self._bound_to(name, function):
            for part in ast.walk(value):
                if isinstance(part, ast.Name):
                    found |= self._classes_in(part.id, function, seen | {name})
        return found or self._annotated(function)

    def _classes_in(
        self,
        name: str,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        seen: frozenset[str],
    ) -> set[ResourceInfo]:
        """Return the resources of a class, of a module's table of classes, or of a local name."""
        value: object = getattr(self.module, name, None)
        if kind := resource_of(value):
            return {kind}
        if isinstance(value, Mapping):
            value = tuple(value.values())
        if isinstance(value, list | tuple | set | frozenset):
            return {kind for each in value if (kind := resource_of(each))}
        if value is not None or name in seen:
            return set()
        return self._in_function(name, function, seen)

    @staticmethod
    def _bound_to(
        name: str, function: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> Iterator[ast.expr]:
        """Yield what assignments, loops and comprehensions of a function bind a name to."""
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=targets, value=value):
                    pass
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    targets = [target]
                case (
                    ast.For(target=target, iter=value)
                    | ast.AsyncFor(target=target, iter=value)
                    | ast.comprehension(target=target, iter=value)
                ):
                    targets = [target]
                case _:
                    continue
            if any(_names(part, name) for each in targets for part in ast.walk(each)):
                yield value

    def _annotated(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[ResourceInfo]:
        """The classes that the types of a function's arguments speak of."""
        found: set[ResourceInfo] = set()
        for argument in function.args.args:
            for part in ast.walk(argument.annotation or ast.Pass()):
                if isinstance(part, ast.Name):
                    found |= set(resources_in(getattr(self.module, part.id, None)))
        return found


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
