"""Generate the rules of the roles in ``config/`` from the requests that the code makes.

Every request goes through the typed client or through an informer, and names the class of the
objects it is about. This reads those calls out of the source and writes, for each role, what the
modules that run with it ask for: nothing that no line of code needs, and nothing forgotten. Where a
call's class cannot be told, it fails rather than leave something out.

``--verify`` writes nothing and reports differences. That the result is enough in practice, and that
the API server sees each of the requests, is for a test with an audit log
(``test/integration/api/test_manager_role_real.py``).
"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import get_args, get_origin, get_type_hints

import attrs

from hack.update_crds import differences
from jobsetpy.api.meta import ResourceInfo

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src"
METHODS = {
    "get": ("get",),
    "list_page": ("list",),
    "create": ("create",),
    "merge_patch": ("patch",),
    "json_patch": ("patch",),
    "apply": ("patch",),  # only ever of objects that are there: apply creates none here
    "delete": ("delete",),
    "informer": ("list", "watch"),
}
OF_METHOD = {"GET": "get", "PATCH": "patch", "POST": "create", "DELETE": "delete"}
PATH = re.compile(
    r"method='(?P<method>\w+)', path=f'/api/v1/namespaces/\{[^}]+\}/(?P<plural>\w+)/\{[^}]+\}"
    r"(?P<subresource>/\w+)?'"
)
DISCOVERY = re.compile(r"path = f'/apis/\{\w+\}/\{\w+\}'")
ORDER = ("get", "list", "watch", "create", "update", "patch", "delete")
EMPTY = '""'
MAKES_NEW = {"list", "watch", "create"}  # cannot be limited to objects of a name


@dataclass(frozen=True, order=True)
class Need:
    """One request that some module makes: ``subresource`` is part of the resource's name."""

    group: str
    resource: str
    verb: str
    module: str


@dataclass(frozen=True)
class Generated:
    """One role, and where its rules come from.

    Args:
        file: below the repository's root.
        name: the role's; a file may hold several.
        modules: whose requests it allows; a trailing ``.*`` means all modules of a package.
        only: if given, these resources alone.
        without: resources that are left to another role.
        beside: names of roles that the same account has anyway.
        names: of the only objects of a resource that are asked for by name.
        also: what the API server asks of the account without a request of its own, with the reason.
    """

    file: str
    name: str
    modules: tuple[str, ...]
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    beside: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    also: tuple[tuple[Need, str], ...] = ()


GROUP_RBAC = frozenset({"roles", "rolebindings"})
CONTROLLERS = ("jobsetpy.reconcilers.*", "jobsetpy.controller.*")
ROLES = (
    Generated(
        "config/rbac/manager_role.yaml",
        "jobset-manager-role",
        CONTROLLERS,
        without=GROUP_RBAC | {"leases"},
        also=(
            (
                Need("jobset.x-k8s.io", "jobsets/finalizers", "update", ""),
                "owner references that block the owner's deletion",
            ),
        ),
    ),
    Generated(
        "config/group-scheduling/manager_role.yaml",
        "jobset-manager-group-role",
        CONTROLLERS,
        only=GROUP_RBAC,
    ),
    Generated(
        "config/rbac/leader_election_role.yaml",
        "jobset-leader-election-role",
        (
            "jobsetpy.manager._leader",
            "jobsetpy.manager._manager",
            "jobsetpy.reconcilers._coscheduler",
        ),
    ),
    Generated("config/rbac/metrics_roles.yaml", "jobset-proxy-role", ("jobsetpy.manager._access",)),
    Generated(
        "config/webhook/role.yaml",
        "jobset-webhook-role",
        ("jobsetpy.admission.*",),
        without=frozenset({"secrets"}),
        beside=("jobset-manager-role",),
        names={
            "mutatingwebhookconfigurations": "jobset-mutating-webhook-configuration",
            "validatingwebhookconfigurations": "jobset-validating-webhook-configuration",
        },
    ),
    Generated(
        "config/webhook/role.yaml",
        "jobset-manager-secrets-role",
        ("jobsetpy.serving.certificates",),
        only=frozenset({"secrets"}),
        names={"secrets": "jobset-webhook-server-cert"},
    ),
    Generated(
        "config/coscheduler/base/role.yaml",
        "jobset-coscheduler-role",
        ("jobsetpy.coscheduler.*", "jobsetpy.controller.*", "jobsetpy.manager._access"),
        without=frozenset({"secrets", "leases"}),
    ),
    Generated(
        "config/coscheduler/base/leader_election_role.yaml",
        "jobset-coscheduler-leader-election-role",
        (
            "jobsetpy.coscheduler._publication",
            "jobsetpy.manager._leader",
            "jobsetpy.manager._manager",
        ),
    ),
)


class UntoldError(Exception):
    """A call whose class of objects cannot be read from the source."""


# ---- reading the source -------------------------------------------------------------------------


def module_names(pattern: str) -> list[str]:
    """The modules that a pattern of :class:`Generated` names, sorted."""
    if not pattern.endswith(".*"):
        return [pattern]
    package = pattern.removesuffix(".*")
    folder = SOURCE.joinpath(*package.split("."))
    files = sorted(folder.rglob("*.py"))
    return [
        ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for path in files
        if path.stem != "__init__"
    ]


@cache
def needs_of(module_name: str) -> frozenset[Need]:
    """Every request of a module.

    Raises:
        UntoldError: a request's class of objects cannot be told.
    """
    path = SOURCE.joinpath(*module_name.split(".")).with_suffix(".py")
    return frozenset(Reader(importlib.import_module(module_name), path).needs())


def resource_of(value: object) -> ResourceInfo | None:
    """Where objects of a class are, if it is one of objects of the API."""
    found = getattr(value, "RESOURCE", None)
    return found if isinstance(found, ResourceInfo) else None


def resources_in(annotation: object) -> Iterator[ResourceInfo]:
    """Those of all classes that a type speaks of as classes, such as ``type[Job] | type[Pod]``."""
    for part in get_args(annotation):
        if get_origin(annotation) is type and (kind := resource_of(part)):
            yield kind
        yield from resources_in(part)


def resources_of_fields(annotation: object) -> Iterator[ResourceInfo]:
    """Those of all classes that a type speaks of, with the fields of values in it."""
    if kind := resource_of(annotation):
        yield kind
    elif attrs.has(annotation):
        for part in get_type_hints(annotation).values():
            yield from resources_of_fields(part)
    else:
        for part in get_args(annotation):
            yield from resources_of_fields(part)


class Reader:
    """Reads the requests out of one module's source."""

    def __init__(self, module: ModuleType, path: Path) -> None:
        self.module = module
        self.where = module.__name__
        self.tree = ast.parse(path.read_text())
        self.inside: dict[ast.AST, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self._note_functions(self.tree, [])

    def _note_functions(
        self, node: ast.AST, around: list[ast.FunctionDef | ast.AsyncFunctionDef]
    ) -> None:
        self.inside[node] = around
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            around = [*around, node]
        for child in ast.iter_child_nodes(node):
            self._note_functions(child, around)

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Every call of a method, with the method's name."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield node.func.attr, node

    def needs(self) -> Iterator[Need]:
        """Every request, once or more often."""
        for method, call in self.calls():
            if not isinstance(call.func, ast.Attribute):
                continue
            receiver = ast.unparse(call.func.value)
            if method == "informer" or receiver.endswith("client"):
                if method == "raw":
                    yield from self._raw(call)
                elif method in METHODS:
                    yield from self._typed(method, call)

    def _typed(self, method: str, call: ast.Call) -> Iterator[Need]:
        subresource = ""
        for keyword in call.keywords:
            if keyword.arg == "subresource" and isinstance(keyword.value, ast.Constant):
                subresource = f"/{keyword.value.value}"
        for kind in self._kinds(call.args[0], call):
            for verb in METHODS[method]:
                yield Need(kind.group, kind.plural + subresource, verb, self.module.__name__)

    def _raw(self, call: ast.Call) -> Iterator[Need]:
        """A request without a class: to an object by its path, or a question of what is served."""
        text = ast.unparse(call)
        if found := PATH.search(text):
            verb = OF_METHOD[found["method"]]
            resource = found["plural"] + (found["subresource"] or "")
            yield Need("", resource, verb, self.module.__name__)
            return
        function = ast.unparse(self.inside[call][-1]) if self.inside[call] else ""
        if "method='POST'" in text and "/binding" in text:
            yield Need("", "pods/binding", "create", self.module.__name__)
        elif not ("method='GET'" in text and DISCOVERY.search(function)):  # open to every account
            raise UntoldError(f"{self.where}:{call.lineno}: {text}")

    def _kinds(self, argument: ast.expr, call: ast.Call) -> set[ResourceInfo]:
        if isinstance(argument, ast.Subscript):  # a table of classes, by kind
            argument = argument.value
        if isinstance(argument, ast.Name):
            known: object = getattr(self.module, argument.id, None)
            if of_class := resource_of(known):
                return {of_class}
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
        raise UntoldError(f"{self.where}:{call.lineno}: which kind is {ast.unparse(argument)!r}?")

    def _in_values(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[ResourceInfo]:
        """The classes that the fields of a function's arguments speak of."""
        found: set[ResourceInfo] = set()
        for argument in function.args.args:
            if isinstance(argument.annotation, ast.Name):
                cls = getattr(self.module, argument.annotation.id, None)
                if attrs.has(cls) and resource_of(cls) is None:
                    found |= set(resources_of_fields(cls))
        return found

    def _in_function(
        self, name: str, function: ast.FunctionDef | ast.AsyncFunctionDef
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
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for part in ast.walk(node.value):
                    name_of = part.id if isinstance(part, ast.Name) else ""
                    if kind := resource_of(getattr(self.module, name_of, None)):
                        found.add(kind)
        return found or self._annotated(function)

    def _annotated(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[ResourceInfo]:
        """The classes that the types of a function's arguments speak of."""
        found: set[ResourceInfo] = set()
        for argument in function.args.args:
            for part in ast.walk(argument.annotation or ast.Pass()):
                if isinstance(part, ast.Name):
                    found |= set(resources_in(getattr(self.module, part.id, None)))
        return found


# ---- writing the roles --------------------------------------------------------------------------


def needs_for(role: Generated) -> set[Need]:
    """What a role has to allow."""
    found = {
        need
        for pattern in role.modules
        for module in module_names(pattern)
        for need in needs_of(module)
    }
    elsewhere = {
        (need.group, need.resource, need.verb)
        for other in ROLES
        if other.name in role.beside
        for need in needs_for(other)
    }
    return {
        need
        for need in found
        if (not role.only or need.resource in role.only)
        and need.resource not in role.without
        and (need.group, need.resource, need.verb) not in elsewhere
    }


def rules_text(role: Generated) -> str:
    """The role's rules as YAML, each with the modules that ask for it."""
    verbs: dict[tuple[str, str], set[str]] = defaultdict(set)
    reasons: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for need in needs_for(role):
        at = (need.group, need.resource)
        verbs[at].add(need.verb)
        package, _, module = need.module.removeprefix("jobsetpy.").partition(".")
        reasons[at][package].add(module)
    for need, reason in role.also:
        verbs[need.group, need.resource].add(need.verb)
        reasons[need.group, need.resource]["API server"].add(reason)
    lines = ["rules:"]
    for at in sorted(verbs):
        name = role.names.get(at[1])
        open_to_all = verbs[at] & MAKES_NEW if name else verbs[at]
        lines += [f"# {who}: {', '.join(sorted(why))}" for who, why in sorted(reasons[at].items())]
        if open_to_all:
            lines += _rule(at, open_to_all, "")
        if name and verbs[at] - open_to_all:
            lines += _rule(at, verbs[at] - open_to_all, name)
    return "\n".join(lines) + "\n"


def _rule(at: tuple[str, str], verbs: set[str], name: str) -> list[str]:
    group, resource = at
    return [
        f"- apiGroups: [{group or EMPTY}]",
        f"  resources: [{resource}]",
        *([f"  resourceNames: [{name}]"] if name else []),
        f"  verbs: [{', '.join(verb for verb in ORDER if verb in verbs)}]",
    ]


def with_rules(text: str, role: Generated) -> str:
    """A file's text with the role's rules made anew.

    Raises:
        ValueError: the file holds no such role.
    """
    documents = re.split(r"(?m)^(?=---$)", text)
    for at, document in enumerate(documents):
        of_role = re.search(rf"(?m)^kind: (Cluster)?Role$[\s\S]*^  name: {role.name}$", document)
        if of_role:
            begin = document.index("\nrules:") + 1
            documents[at] = document[:begin] + rules_text(role)
            return "".join(documents)
    msg = f"{role.file} holds no role {role.name}"
    raise ValueError(msg)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--verify", action="store_true", help="write nothing, report differences")
    args = parser.parse_args(arguments)
    texts: dict[Path, str] = {}
    try:
        for role in ROLES:
            path = REPOSITORY / role.file
            texts[path] = with_rules(texts.get(path) or path.read_text(), role)
    except UntoldError as untold:
        print(f"{untold}: say so in the call, or teach hack/update_rbac.py", file=sys.stderr)
        return 2
    changed = False
    for path, text in texts.items():
        name = path.relative_to(REPOSITORY)
        found = differences(path, text)
        if found and args.verify:
            print(f"{name}: out of date; run hack/update_rbac.py", *found, sep="\n")
        elif found:
            path.write_text(text)
            print(f"{name}: written")
        else:
            print(f"{name}: up to date")
        changed |= bool(found)
    return 1 if changed and args.verify else 0


if __name__ == "__main__":
    sys.exit(main())
