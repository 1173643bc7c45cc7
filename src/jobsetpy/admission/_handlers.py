"""Handlers that answer admission requests by the rules of ``jobsetpy.reconcilers``.

The cluster state that a rule needs is read first (volume claims by request, pods and nodes from the
caches), then a pure function decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec

from jobsetpy.admission._settings import WebhookSettings
from jobsetpy.api import shapes
from jobsetpy.api.batch import Job
from jobsetpy.api.core import LabelledNode, Namespace, PersistentVolumeClaim
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import ObjectKey, ResourceInfo
from jobsetpy.api.structural_schema import cause
from jobsetpy.api.unstructured import unstructured
from jobsetpy.client import Client
from jobsetpy.errors import ForbiddenError, NotFoundError
from jobsetpy.informers import Index, Store
from jobsetpy.reconcilers.coscheduling.admission import add_marks, member_problem
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.execution.caches import first_index_is_over, node_labels
from jobsetpy.reconcilers.execution.parallel import in_parallel
from jobsetpy.reconcilers.jobs.validation.volumes import Claim
from jobsetpy.reconcilers.placement import admission as pod_placement
from jobsetpy.reconcilers.placement.admission import base_name
from jobsetpy.reconcilers.restart_in_place.injection.agent import inject
from jobsetpy.reconcilers.restart_in_place.injection.effective import (
    contradictions,
    fill,
    refill,
    with_sources,
)
from jobsetpy.reconcilers.restart_in_place.injection.update import restore
from jobsetpy.reconcilers.restart_in_place.validation.agents import (
    accounts,
    missing_account,
    restart_all_rules,
    undeclared_warning,
)
from jobsetpy.reconcilers.rules.annotations import check_annotations
from jobsetpy.reconcilers.rules.field_errors import FieldError, FieldWarning
from jobsetpy.reconcilers.rules.json_tree import Json, child, text
from jobsetpy.reconcilers.startup_groups.injection import add_barrier
from jobsetpy.reconcilers.validation.create import claims_to_look_up, validate_create
from jobsetpy.reconcilers.validation.defaulting import default_jobset, kept_defaults, rewrite_jobset
from jobsetpy.reconcilers.validation.kueue import keep_zero_replicas
from jobsetpy.reconcilers.validation.update import validate_update
from jobsetpy.reconcilers.validation.warnings import warnings
from jobsetpy.serving import review
from jobsetpy.serving.review import ALLOWED, Answer, ReviewRequest
from jobsetpy.serving.review_routes import Handler

T = TypeVar("T")

StoredClaim = unstructured(PersistentVolumeClaim.RESOURCE)
StoredAccount = unstructured(ResourceInfo("", "v1", "ServiceAccount", "serviceaccounts"))

MUTATE_JOBSET = "/mutate-jobset-x-k8s-io-v1alpha2-jobset"
VALIDATE_JOBSET = "/validate-jobset-x-k8s-io-v1alpha2-jobset"
MUTATE_POD = "/mutate--v1-pod"
VALIDATE_POD = "/validate--v1-pod"

_LOOKUP_TIMEOUT_S = 4.0
"""Timeout in seconds of each lookup of a volume claim."""
_LARGE_BYTES = 100_000
"""Size of a request's objects as JSON, in bytes, from which they are processed in another thread:
that of about 10 ms."""
_LOOKUPS_AT_ONCE = 16
"""Maximum concurrent lookups; a JobSet may have 2,500 templates, to be answered in seconds."""


def _leader_names(pod: ChildPod) -> Iterable[str]:
    annotations = pod.metadata.annotations
    if annotations.exclusive_topology is None:
        return ()
    if annotations.completion_index != pod_placement.LEADER_INDEX:
        return ()  # followers are never looked up
    base = base_name(pod.metadata.name)
    return (f"{pod.metadata.namespace}/{base}",) if base else ()


LEADERS: Index[ChildPod] = Index("podName", _leader_names)
"""Leaders with exclusive placement, by namespace and name without random characters."""


class JobSetHandlers:
    """Defaulting and validation of JobSets.

    Args:
        client: API client that looks up volume claims, namespaces and accounts.
        settings: settings of the webhooks; defaults if ``None``.
        nodes: all nodes, if they are watched.
    """

    def __init__(
        self,
        client: Client,
        settings: WebhookSettings | None = None,
        *,
        nodes: Store[LabelledNode] | None = None,
    ) -> None:
        self._client = client
        self._settings = settings = settings or WebhookSettings()
        self._features = settings.features
        self._nodes = nodes
        self._one_large = asyncio.Semaphore(1)
        shapes.jobset_spec()  # takes 50 ms, so before the first request

    async def mutate(self, request: ReviewRequest) -> Answer:
        """Inject the agent if the JobSet requests it, then add the missing defaults.

        A changed JobSet only gets back what was injected earlier, in its former notation.
        """
        changing = request.operation == "UPDATE"
        if not changing and request.operation != "CREATE":
            return ALLOWED
        for what in (request.object, request.old_object) if changing else (request.object,):
            if not isinstance(what, Mapping):
                return review.undecodable("the request's object is no JobSet")
        if changing:
            return await self._calculated(request, lambda: _mutated_change(request))
        notes, warned = await self._namespace_notes(request.namespace)
        return await self._calculated(request, lambda: self._mutated_new(request, notes, warned))

    def _mutated_new(
        self,
        request: ReviewRequest,
        namespace: Json,
        warned: list[FieldWarning],
    ) -> Answer:
        jobset, patch = rewrite_jobset(request.object)
        filled = fill(jobset, namespace, self._settings.defaults)
        if filled.problems:
            return invalid_jobset(request.object, filled.problems)
        jobset, patch = filled.jobset, [*patch, *filled.patch]
        if self._features.in_place_restart:  # otherwise validation rejects the strategy
            injected = inject(
                jobset, image=self._settings.agent_image, settings=self._settings.injected
            )
            if injected.problems:
                return invalid_jobset(jobset, injected.problems)
            jobset, patch = injected.jobset, [*patch, *injected.patch]
        patch = [*patch, *default_jobset(jobset)]
        return Answer(patch=patch, warnings=[*map(str, warned), *map(str, filled.warnings)])

    async def _namespace_notes(self, name: str) -> tuple[Json, list[FieldWarning]]:
        """Return the annotations of a namespace, and a warning if they may not be read."""
        try:
            namespace = await self._client.get(Namespace, "", name, timeout_s=_LOOKUP_TIMEOUT_S)
        except NotFoundError:
            return {}, []  # it is being deleted, and so is the JobSet
        except ForbiddenError as why:  # until the manager's role is that of its release
            field = f"the annotations of namespace {name}"
            return {}, [FieldWarning(field, f"are not applied: {why.message}")]
        return namespace.metadata.annotations, []

    async def validate(self, request: ReviewRequest) -> Answer:
        """Validate a new or changed JobSet; a new one also gets warnings."""
        if request.operation not in {"CREATE", "UPDATE"}:
            return ALLOWED
        refusal = await self._calculated(request, lambda: _decode_problem(request))
        if refusal:
            return review.undecodable(refusal)
        jobset: Json = request.object
        warned: list[FieldWarning] = []
        if request.operation == "UPDATE":
            problems = await self._calculated(
                request,
                lambda: validate_update(request.old_object, jobset, features=self._features),
            )
            enforced = self._settings.defaults.enforced
            problems = [*problems, *contradictions(jobset, enforced, request.old_object)]
            warned = check_annotations(jobset, request.old_object).warnings
        else:
            names = claims_to_look_up(jobset)
            claims = await self._claims(request.namespace, names)
            problems, warned = await self._calculated(
                request, lambda: self._validated_new(jobset, claims)
            )
            missing = [] if problems else await self._missing_accounts(jobset, request.namespace)
            if request.dry_run:
                # A client that tries all objects before it applies any, as Flux and `kubectl diff`
                # do, creates the account with the JobSet.
                warned = [*warned, *(FieldWarning(each.field, each.message) for each in missing)]
            else:
                problems = problems or missing
            if not problems:
                warned = [*warned, *self._undeclared(jobset)]
        if problems:
            return invalid_jobset(jobset, problems)
        return Answer(warnings=[str(each) for each in warned]) if warned else ALLOWED

    def _validated_new(
        self, jobset: Json, claims: Mapping[str, Claim]
    ) -> tuple[list[FieldError], list[FieldWarning]]:
        """Return the errors of a new JobSet, and its warnings if it has no errors."""
        problems = validate_create(jobset, features=self._features, claims=claims)
        if problems:
            return problems, []
        backend, settings = self._settings.backend, self._settings
        marks = settings.marks if backend is None else backend.marks
        secret = settings.injected.pull_secret
        found = warnings(jobset, self._features, pull_secret=secret, backend=marks.backend)
        return [], found

    async def _calculated(self, request: ReviewRequest, rule: Callable[[], T]) -> T:
        """Return the result of pure functions, without holding the loop for a large object.

        An object of 1.5 MB takes more than 100 ms. Another thread calculates it: the interpreter
        lets the loop continue every few milliseconds, whatever the object's form. Only one such
        thread runs at a time, so that a flood of large objects delays large objects alone.
        """
        if len(msgspec.json.encode((request.object, request.old_object))) < _LARGE_BYTES:
            return rule()
        async with self._one_large:
            return await asyncio.to_thread(rule)

    async def _missing_accounts(self, jobset: Json, namespace: str) -> list[FieldError]:
        """Return errors for accounts that do not exist.

        The manager does not create them: it would need every right that it hands out.
        """
        found = []
        for name, field in accounts(jobset).items():
            try:
                await self._client.get(StoredAccount, namespace, name, timeout_s=_LOOKUP_TIMEOUT_S)
            except NotFoundError:
                found.append(missing_account(name, field, namespace))
            except ForbiddenError:
                pass  # an older role; the Job controller reports a missing account by events
        return found

    def _undeclared(self, jobset: Json) -> list[FieldWarning]:
        """Return a warning about the first rule that no node's kubelet may support.

        Without nodes there is none: they may be added with the pods.
        """
        rules = restart_all_rules(jobset, self._features)
        nodes = [] if self._nodes is None or not self._nodes.has_synced else self._nodes.list()
        if not rules or not nodes or any(node.restarts_all for node in nodes):
            return []
        return [undeclared_warning(rules[0], len(nodes))]

    async def _claims(self, namespace: str, names: Sequence[str]) -> dict[str, Claim]:
        found: dict[str, Claim] = {}

        async def look_up(name: str) -> None:
            with suppress(NotFoundError):
                claim = await self._client.get(
                    StoredClaim, namespace, name, timeout_s=_LOOKUP_TIMEOUT_S
                )
                found[name] = {"metadata": claim["metadata"], "spec": claim.spec}

        return found | dict(await in_parallel(_LOOKUPS_AT_ONCE, names, look_up))


class PodHandlers:
    """Placement of the pods of JobSets, from the manager's caches.

    If a cache is behind, a follower waits for its release, or for the Job controller's next attempt
    if no scheduling gate may hold it.

    Args:
        pods: store of pods with the index :data:`LEADERS`.
        nodes: all nodes.
        jobs: child Jobs.
        settings: settings of the webhooks; defaults if ``None``.
    """

    def __init__(
        self,
        settings: WebhookSettings | None = None,
        *,
        pods: Store[ChildPod],
        nodes: Store[LabelledNode],
        jobs: Store[Job],
    ) -> None:
        self._settings = settings = settings or WebhookSettings()
        self._asked = settings.marks if settings.features.coscheduling else SchedulerFields()
        self._backend = settings.backend
        self._pods = pods
        self._node_labels = partial(node_labels, nodes)
        self._jobs = jobs

    async def mutate(self, request: ReviewRequest) -> Answer:
        """Add affinity to a leader, the leader's domain to a follower, and scheduler fields."""
        if request.operation != "CREATE":
            return ALLOWED
        if not isinstance(request.object, Mapping):
            return review.undecodable("the request's object is no Pod")
        mutation = pod_placement.mutate(
            request.object,
            self._leaders(request.namespace),
            self._node_labels,
            self._over(request.namespace),
        )
        if mutation.denied:
            return review.forbidden(mutation.denied)
        barrier = add_barrier(
            request.object, self._settings.barrier, settings=self._settings.injected
        )
        patch = [*mutation.patch, *barrier]
        return Answer(patch=[*patch, *add_marks(request.object, self._marks)])

    async def validate(self, request: ReviewRequest) -> Answer:
        """Return whether a pod may be created now."""
        if request.operation != "CREATE":
            return ALLOWED
        if not isinstance(request.object, Mapping):
            return review.undecodable("the request's object is no Pod")
        problem = member_problem(request.object) if self._marks.coscheduled else None
        if problem is not None:
            return review.forbidden(str(problem))
        refusal = pod_placement.refusal(request.object, self._leaders(request.namespace))
        return review.forbidden(refusal) if refusal else ALLOWED

    @property
    def _marks(self) -> SchedulerFields:
        return self._asked if self._backend is None else self._backend.marks_of_others

    def _leaders(self, namespace: str) -> pod_placement.LeaderLookup:
        return lambda base: self._pods.by_index(LEADERS, f"{namespace}/{base}")

    def _over(self, namespace: str) -> pod_placement.LeaderOver:
        return lambda name, uid: first_index_is_over(self._jobs, ObjectKey(namespace, name), uid)


def routes(jobsets: JobSetHandlers, pods: PodHandlers) -> dict[str, Handler]:
    """Return the handlers by path."""
    return {
        MUTATE_JOBSET: jobsets.mutate,
        VALIDATE_JOBSET: jobsets.validate,
        MUTATE_POD: pods.mutate,
        VALIDATE_POD: pods.validate,
    }


def invalid_jobset(jobset: Json, problems: Sequence[FieldError]) -> Answer:
    """Return a 422 with one cause per problem."""
    found = with_sources(jobset, problems)
    causes = [cause(each.cause, each.message, each.field) for each in found]
    return review.invalid(JobSet.RESOURCE, text(child(jobset, "metadata"), "name"), causes)


def _mutated_change(request: ReviewRequest) -> Answer:
    given, zeros, warned = keep_zero_replicas(request.object, request.old_object)
    filled = refill(request.old_object, given)
    restored = restore(request.old_object, filled.jobset)
    jobset, patch = rewrite_jobset(restored.jobset, request.old_object)
    patch = [
        *zeros,
        *filled.patch,
        *restored.patch,
        *patch,
        *kept_defaults(jobset, request.old_object),
    ]
    return Answer(patch=patch, warnings=[str(each) for each in warned]) if patch else ALLOWED


def _decode_problem(request: ReviewRequest) -> str:
    """Return why an object of a request is not a JobSet; "" if each is one."""
    changing = request.operation == "UPDATE"
    for what in (request.object, request.old_object) if changing else (request.object,):
        try:
            msgspec.convert(what, JobSet)
        except msgspec.ValidationError as error:
            return f"the request's object is no JobSet: {error}"
    return ""
