"""Generate the rules of the roles in ``config/`` from the requests that the code makes.

Every request goes through the typed client or an informer, and names the class of its objects. This
program finds those calls in the source and writes, for each role, exactly the permissions that the
modules that run with it request. If it cannot determine a call's class, it fails.

``--verify`` writes nothing and reports differences. A test with an audit log
(``test/integration/api/test_manager_role_real.py``) checks that the permissions are sufficient in
practice, and that the API server receives each of the requests.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from hack.generate.generated import ROOT, write_or_compare
from jobsetpy.app.rbac import MAKES_NEW, Need, UnknownClassError, module_names, needs_of, rule


@dataclass(frozen=True)
class Generated:
    """A role, and the sources of its rules.

    Args:
        file: path relative to the repository's root.
        name: name of the role; a file may contain several.
        modules: modules whose requests the role allows; a trailing ``.*`` means all of a package.
        only: if given, the only resources of the role.
        without: resources that another role allows.
        excluded: modules of these packages whose requests another role allows.
        in_addition_to: names of roles that the same account always has.
        names: resource to the name of the only object that is requested by name.
        also: permissions that the API server requires without a request, each with the reason.
    """

    file: str
    name: str
    modules: tuple[str, ...]
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    in_addition_to: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    also: tuple[tuple[Need, str], ...] = ()


GROUP_RBAC = frozenset({"roles", "rolebindings"})
SUCCESSORS = "jobsetpy.reconcilers.restart_in_place.replacing.successors_reconciler"
CONTROLLERS = ("jobsetpy.reconcilers.*", "jobsetpy.controller.*")
ROLES = (
    Generated(
        "config/rbac/manager_role.yaml",
        "jobset-manager-role",
        CONTROLLERS,
        without=GROUP_RBAC | {"leases"},
        excluded=frozenset({SUCCESSORS}),
        also=(
            (
                Need("jobset.x-k8s.io", "jobsets/finalizers", "update", ""),
                "owner references that block the owner's deletion",
            ),
        ),
    ),
    Generated(
        "config/rbac/successor_role.yaml",
        "jobset-manager-successor-role",
        (SUCCESSORS,),
        in_addition_to=("jobset-manager-role",),
        also=(
            (
                Need("batch", "jobs/finalizers", "update", ""),
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
            "jobsetpy.reconcilers.coscheduling.backend_watch",
        ),
    ),
    Generated("config/rbac/metrics_roles.yaml", "jobset-proxy-role", ("jobsetpy.manager._access",)),
    Generated(
        "config/webhook/role.yaml",
        "jobset-webhook-role",
        ("jobsetpy.admission.*", "jobsetpy.serving.webhook_certificates"),
        without=frozenset({"secrets", "customresourcedefinitions"}),
        in_addition_to=("jobset-manager-role",),
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
        (
            "jobsetpy.coscheduler.*",
            "jobsetpy.controller.*",
            "jobsetpy.manager._access",
        ),
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


# ---- writing the roles --------------------------------------------------------------------------


def needs_for(role: Generated) -> set[Need]:
    """Return the permissions that a role has to allow."""
    found = {
        need
        for pattern in role.modules
        for module in module_names(pattern)
        if module not in role.excluded
        for need in needs_of(module)
    }
    elsewhere = {
        (need.group, need.resource, need.verb)
        for other in ROLES
        if other.name in role.in_addition_to
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
    """Return the role's rules as YAML, each with the modules that need it."""
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
            lines += rule(at, open_to_all, "")
        if name and verbs[at] - open_to_all:
            lines += rule(at, verbs[at] - open_to_all, name)
    return "\n".join(lines) + "\n"


def with_rules(text: str, role: Generated) -> str:
    """Return a file's text with the role's generated rules.

    Raises:
        ValueError: the file does not contain the role.
    """
    documents = re.split(r"(?m)^(?=---$)", text)
    for at, document in enumerate(documents):
        of_role = re.search(rf"(?m)^kind: (Cluster)?Role$[\s\S]*^  name: {role.name}$", document)
        if of_role:
            begin = document.index("\nrules:") + 1
            documents[at] = document[:begin] + rules_text(role)
            return "".join(documents)
    raise ValueError(f"{role.file} holds no role {role.name}")


def main(argv: list[str]) -> int:
    """Write or compare; return the exit code."""
    texts: dict[str, str] = {}
    try:
        for role in ROLES:
            text = texts.get(role.file) or (ROOT / role.file).read_text()
            texts[role.file] = with_rules(text, role)
    except UnknownClassError as error:
        advice = "name the class in the call, or add the case to src/jobsetpy/app/rbac.py"
        print(f"{error}: {advice}", file=sys.stderr)
        return 2
    return write_or_compare(texts.items(), __doc__, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
