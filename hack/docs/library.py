"""Reference pages of the public packages, by task.

A name in no task is described on the package's own page, so that a new one is never missing.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from types import ModuleType
from typing import Final

import attrs

PACKAGES: Final[Mapping[str, str]] = {
    "docs/reference/runtime": "jobsetpy.runtime",
    "docs/reference/testing": "jobsetpy.testing",
}
"""Packages by page."""


@attrs.frozen
class Task:
    """One page of a package.

    Attributes:
        title: the task.
        names: exported names, separated by spaces.
    """

    title: str
    names: str


TASKS: Final[Mapping[str, Mapping[str, Task]]] = {
    "docs/reference/runtime": {
        "controllers": Task(
            "Write a controller",
            "Controller Reconciler Request Result Outcome controller_for Watch Event EventHandler"
            " enqueue_self enqueue_owner enqueue_mapped Expectations TerminalError RateLimiter"
            " RetryDelays",
        ),
        "predicates": Task(
            "Choose the changes that matter",
            "Predicate any_of not_ named created updated deleted"
            " field_changed generation_changed labels_changed"
            " annotations_changed resource_version_changed",
        ),
        "caches": Task(
            "Read objects from caches",
            "Store SharedInformer Index BY_NAMESPACE OWNER_UID ObjectKey key_of"
            " WatchOptions InformerObserver NullObserver CacheError NotSyncedError"
            " UnknownIndexError IndexConflictError",
        ),
        "writing": Task(
            "Write objects",
            "Client KubeClient connect create_or_apply Applied patch_status list_objects Page"
            " Finalizer finalizer set_condition condition_of owner_reference_to difference"
            " to_json EventRecorder EventLimits HttpRequest HttpResponse",
        ),
        "kinds": Task(
            "Declare kinds",
            "model field resource ResourceInfo evolve quantity duration KubeObject ObjectMeta"
            " Condition OwnerReference LabelSelector LabelRequirement Unstructured unstructured"
            " discover DecodeError ConfigMap Deployment Job Lease Namespace Node"
            " PersistentVolumeClaim Pod Secret Service",
        ),
        "webhooks": Task(
            "Serve webhooks",
            "Webhook AdmissionRequest Check Invalid Warn serve_webhooks WebhookServerSettings",
        ),
        "running": Task(
            "Run a manager",
            "Manager ManagerSettings LeaderElectionSettings Runnable ServerRunnable Clock"
            " LoopClock configure_logging get_logger LifecycleError LeadershipLostError"
            " NotLeadingError AlreadyStartedError StartTimedOutError StopTimedOutError",
        ),
        "errors": Task(
            "Handle errors of the API server",
            "JobSetPyError ApiError RetryableApiError ApiTimeoutError TransportError"
            " ConnectFailedError StreamBrokenError AlreadyExistsError ConflictError ExpiredError"
            " ForbiddenError InvalidError NotFoundError UnauthorizedError",
        ),
    },
    "docs/reference/testing": {
        "world": Task(
            "Test against a cluster in memory",
            "World VirtualTime VirtualTimeLoop VirtualClock running_manager"
            " Faults Select Rule RequestLog Request StatusError Target crd_of json_patch"
            " eventually",
        ),
        "servers": Task(
            "Serve a fake API server", "FakeApiServer ServedApi MemoryTransport write_kubeconfig"
        ),
        "objects": Task(
            "Make objects and stores",
            "JobBuilder JobSetBuilder PodBuilder make_job make_jobset make_pod decoded store_of"
            " store_writer_of RecordingClient",
        ),
    },
}
"""Tasks of each package's page; the key ends the name of the task's page."""


def pages_of(page: str) -> list[str]:
    """Return a package's page and those of its tasks, in the order of the navigation."""
    return [page, *(f"{page}-{task}" for task in TASKS[page])]


def page_texts(page: str) -> Iterator[tuple[str, str]]:
    """Yield each page of a package with its text, in reStructuredText."""
    package = importlib.import_module(PACKAGES[page])
    left = dict.fromkeys(public_names(package))
    overview = [*_title(f"``{package.__name__}``"), inspect.getdoc(package) or "", ""]
    for key, task in TASKS[page].items():
        names = [name for name in task.names.split() if name in left]
        left = {name: None for name in left if name not in names}
        link = f":doc:`{task.title} <{page.rpartition('/')[2]}-{key}>`"
        overview += [link, "-" * len(link), "", *_module(package), *_table(package, names)]
        parts = [*_title(task.title), *_module(package), *_table(package, names)]
        yield f"{page}-{key}", "\n".join([*parts, *_described(package, names)])
    if left:
        overview += ["Others", "------", "", *_table(package, left), *_described(package, left)]
    yield page, "\n".join(overview)


def public_names(package: ModuleType) -> list[str]:
    """Return the names that a package exports."""
    return sorted(
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    )


def _title(text: str) -> list[str]:
    return [text, "=" * len(text), ""]


def _module(package: ModuleType) -> list[str]:
    return [f".. currentmodule:: {package.__name__}", ""]


def _table(package: ModuleType, names: Iterable[str]) -> list[str]:
    rows = []
    for name in names:
        first, _, _ = _text(package, name).partition("\n\n")
        sentence = re.split(r"(?<=\.)\s", " ".join(first.split()))[0]
        rows += [f"   * - :py:obj:`{name}`", f"     - {sentence}"]
    return [".. list-table::", "   :widths: auto", "", *rows, ""]


def _text(package: ModuleType, name: str) -> str:
    """Return the description of a name: its docstring, or the text below an alias of a type."""
    of = getattr(package, name)
    if (inspect.isclass(of) or inspect.isfunction(of)) and of.__doc__:
        return inspect.getdoc(of) or ""
    for module in [*sys.modules.values()]:
        if module.__name__.startswith("jobsetpy.") and vars(module).get(name) is of:
            lines = ast.parse(inspect.getsource(module)).body
            for line, below in pairwise(lines):
                match line, below:
                    case (
                        ast.Assign(targets=[ast.Name(id=found)])
                        | ast.AnnAssign(target=ast.Name(id=found)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ) if found == name:
                        return inspect.cleandoc(text)
    return inspect.getdoc(of) or ""


def _described(package: ModuleType, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        of = getattr(package, name)
        if inspect.isclass(of):
            yield from (f".. autoclass:: {name}", "   :members:", "")
        elif inspect.isfunction(of):
            yield from (f".. autofunction:: {name}", "")
        else:
            text = textwrap.indent(_text(package, name), "   ")
            yield from (f".. autodata:: {name}", "   :no-value:", "", text, "")
