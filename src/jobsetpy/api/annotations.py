"""Table of the annotations of JobSets: the one place that names, parses and describes them.

Validation, defaults, ``kubectl jobset explain``, ``lint`` and the reference page read it. The names
that agents use are defined in ``agent_keys``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from jobsetpy.api import agent_keys

PREFIX: Final = "jobset.sigs.k8s.io/"
ALPHA_PREFIX: Final = "alpha.jobset.sigs.k8s.io/"
_OWN_WORDS: Final = (
    "in-place- coschedul injected- restart-backoff lost-node max-restarts replace-deleted"
)
OWN_PREFIXES: Final = tuple(f"{PREFIX}{word}" for word in _OWN_WORDS.split())
"""Prefixes of annotations that no other project writes."""

INT32_MAX: Final = 2**31 - 1
MAX_SECONDS: Final = 86400
MAX_HANG_S: Final = 604800
MAX_SPARES: Final = 1000
MAX_MINIMUM: Final = 100_000
MAX_PROCESSES: Final = 64
MAX_RULES_TEXT: Final = 16384
LONGEST_S: Final = 366 * 86400.0
"""Maximum duration in seconds, except for deadlines."""
AUTO: Final = "auto"
AUTO_HANG: Final = AUTO
"""Value in place of seconds: the limit is five times the longest step observed by the agent."""


class Level(Enum):
    """Object whose annotations are read."""

    JOBSET = "JobSet"
    JOB = "Job template"
    POD = "pod template"


class Form(NamedTuple):
    """Values of an annotation.

    Args:
        values: description, such as "a whole number from 0 to 1000".
        parse: returns the value of a text; raises ``ValueError`` for an invalid one, with the
            reason if it differs from the description.
    """

    values: str
    parse: Callable[[str], Any]


class Annotation(NamedTuple):
    """One annotation.

    Args:
        name: full name.
        text: description; one sentence without a full stop.
        form: its values.
        levels: objects on which it is read; none if a program writes it.
        default: value that applies without it; "" if that is no text.
        page: page of the documentation.
        since: first release with it.
        needs: other annotations, of which one has to be set.
        agent: True for a setting of an injected agent.
        supervisor: reason why it has no effect with a sidecar; "" if it has.
    """

    name: str
    text: str
    form: Form
    levels: tuple[Level, ...] = (Level.JOBSET,)
    default: str = ""
    page: str = ""
    since: str = "0.2.0"
    needs: tuple[str, ...] = ()
    agent: bool = False
    supervisor: str = ""

    def problem(self, value: object) -> str:
        """Return why a value is invalid; "" if it is valid."""
        if not isinstance(value, str):
            return f"must be text in quotes: {self.form.values}"
        try:
            self.form.parse(value)
        except ValueError as why:
            return str(why) or f"must be {self.form.values}"
        return ""


TABLE: Final[dict[str, Annotation]] = {}
"""All annotations by name, in the order of the reference page."""


def read(name: str, *notes: Mapping[str, Any], default: Any = None) -> Any:
    """Return the parsed value of an annotation, from the first object that has it.

    Args:
        name: name of the annotation.
        notes: annotations of objects, the one that takes precedence first.
        default: result if none has it, or if its value is one that admission would refuse.
    """
    for each in notes:
        if (value := each.get(name)) is not None:
            try:
                return TABLE[name].form.parse(value) if isinstance(value, str) else default
            except ValueError:
                return default
    return default


# ---- forms --------------------------------------------------------------------------------------


def _words(values: str, *words: str) -> Form:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Form(values, parse)


def _whole(least: int, most: int, values: str = "", *, auto: bool = False) -> Form:
    def parse(text: str) -> int | str:
        if auto and text == AUTO:
            return text
        # int() alone would also accept "1_000", " 1" and digits of other scripts.
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise ValueError
        if not least <= int(text) <= most or (text.startswith("0") and least):
            raise ValueError
        return int(text)

    described = values or f"a whole number from {least} to {most}"
    return Form(f'{described}, or "{AUTO}"' if auto else described, parse)


def _seconds(
    values: str, *, least: float = 0, most: float = MAX_SECONDS, auto: bool = False
) -> Form:
    def parse(text: str) -> float | str:
        if auto and text == AUTO:
            return text
        if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,3})?", text, re.ASCII):
            raise ValueError
        if not least <= float(text) <= most:
            raise ValueError
        return float(text)

    return Form(f'{values}, or "{AUTO}"' if auto else values, parse)


def _duration(*, zero: str = "") -> Form:
    values = f"a duration such as 90s, 5m or 24h{zero}"

    def parse(text: str) -> float:
        seconds = _parsed_duration(text, f"must be {values}")
        if not seconds and not zero:
            raise ValueError
        if seconds > LONGEST_S:
            raise ValueError(f"must be at most {LONGEST_S / 3600:.0f}h (366 days)")
        return seconds

    return Form(values, parse)


def _parsed_duration(text: str, why: str) -> float:
    from jobsetpy.api.durations import parse_duration

    try:
        return parse_duration(text[:64])
    except ValueError:
        raise ValueError(why) from None


def _deadline(text: str) -> float:
    seconds = _parsed_duration(text, f"must be {_DEADLINE}")
    if seconds and not 10 <= seconds <= MAX_SECONDS:
        raise ValueError
    return seconds


def _exit_codes(text: str) -> frozenset[int]:
    words = text.replace(",", " ").split()
    if not all(re.fullmatch(r"[1-9][0-9]{0,2}", word) and int(word) <= 255 for word in words):
        raise ValueError
    if len(codes := frozenset(map(int, words))) > 64:
        raise ValueError("must be at most 64 exit codes")
    return codes


def _signal(text: str) -> str:
    import signal

    name = text.upper().removeprefix("SIG")
    known = signal.Signals.__members__.get(f"SIG{name}")
    if known is None or known in {signal.SIGKILL, signal.SIGSTOP}:
        raise ValueError
    return text


def _sections(text: str) -> dict[str, float]:
    from jobsetpy.api.hang_sections import SECTIONS_FORM, hang_sections

    if not (found := hang_sections(text)):
        raise ValueError(SECTIONS_FORM)
    return found


def _modules(text: str) -> list[str]:
    from difflib import SequenceMatcher

    from jobsetpy.api.python_command import module_names

    if (found := module_names(text)) is None:
        raise ValueError
    for word in found[:8]:
        # A valid module name, but a standby process would only find out that it does not exist.
        alike = sorted(word) == sorted(AUTO) or SequenceMatcher(None, word, AUTO).ratio() > 0.85
        if word != AUTO and alike:
            raise ValueError(f'must be {_MODULES}; did you mean "{AUTO}"?')
    return found


def _command(text: str) -> str:
    if not text.strip() or "\0" in text or len(text) > 4096:
        raise ValueError
    return text


def _amounts(text: str) -> dict[str, str]:
    from jobsetpy.api.quantities import parse_amounts

    return parse_amounts(text)


def _progress_pattern(text: str) -> str:
    from difflib import get_close_matches

    from jobsetpy.api.log_lines import BUILT_IN, progress_patterns

    alike = get_close_matches(text[:64], names := [AUTO, *BUILT_IN], 1, 0.7)
    if alike and text not in names:
        raise ValueError(f'must be {_PATTERNS}; did you mean "{alike[0]}"?')
    progress_patterns(text)
    return text


@lru_cache(maxsize=64)
def _log_rules(text: str) -> list[Any]:
    from jobsetpy.api.log_lines import parse_rules

    if len(text) > MAX_RULES_TEXT:
        raise ValueError(f"must be at most {MAX_RULES_TEXT} characters")
    import yaml

    try:
        data = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError) as why:
        raise ValueError(f"is no YAML: {' '.join(str(why).split())[:200]}") from None
    return parse_rules(data)


def _names(text: str) -> list[str]:
    if not (found := list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))):
        raise ValueError
    return found


_SWITCH: Final = _words('"true" or "false"', "true", "false")
_ANY: Final = Form("any text", str)
_DURATION: Final = _duration()
_HANG: Final = f"a whole number of seconds from 1 to {MAX_HANG_S}"
_CODES: Final = Form('exit codes from 1 to 255, with commas, such as "3,4"', _exit_codes)
_AMOUNTS: Final = Form("amounts by resource, such as cpu=100m,memory=64Mi", _amounts)
_MODULES: Final = (
    '"auto", names of Python modules, such as "torch,transformers", or both, with commas'
)
_PATTERNS: Final = (
    f'"{AUTO}", the name of a framework, or a regular expression (RE2) such as "step=([0-9]+)"'
)
_DEADLINE: Final = "0 (never) or from 10s to 24h"

# ---- rows ---------------------------------------------------------------------------------------

_IN_PLACE: Final = "how-to/restart-in-place.md"
_STANDBY: Final = "how-to/standby.md"
_SPARES: Final = "how-to/spares.md"
_HANGS: Final = "how-to/progress.md"
_LOG_RULES: Final = "how-to/log-rules.md"
_LOST: Final = "how-to/lost-nodes.md"
_ELASTIC: Final = "how-to/elastic.md"
_DEVICES: Final = "how-to/devices.md"
_POLICY: Final = "how-to/failure-policy.md"
_GANGS: Final = "how-to/coscheduling.md"
_PLATFORM: Final = "how-to/platform-rules.md"
_PLACEMENT: Final = "explanation/exclusive-placement.md"
_KUBELET: Final = "where the kubelet stops the containers"
_NO_FILE: Final = "where the agent does not see the worker's file"
_NO_OUTPUT: Final = "which does not see the worker's output"
_NO_PROCESSES: Final = "which starts no processes"
_NO_SEATS: Final = "which cannot give a container another rank while it runs"
_BOTH: Final = (Level.JOBSET, Level.POD)


def _row(name: str, text: str, form: Form, page: str, **others: Any) -> str:
    name = name if "/" in name else f"{PREFIX}{name}"
    TABLE[name] = Annotation(name, text, form, page=page, **others)
    return name


def _agent(
    name: str, text: str, form: Form, page: str = _IN_PLACE, supervisor: str = "", **others: Any
) -> str:
    """Add a setting of an injected agent, which a pod template may override."""
    others = {"levels": _BOTH, **others}
    others |= {"agent": True, "supervisor": supervisor}
    return _row(f"in-place-restart-{name}", text, form, page, **others)


def _written(name: str, text: str) -> str:
    """Add an annotation that a program writes on Jobs or pods; users do not set it."""
    return _row(name, text, _ANY, "", levels=())


# fmt: off
IN_PLACE_RESTART_ANNOTATION: Final = _row(
    "in-place-restart",
    "`fast`: supervisor, standby processes, hang detection, and heartbeats where there are spares",
    _words('"fast" or "off"', "fast", "off"), _IN_PLACE, since="0.3.0", default="off")
IN_PLACE_AGENT_ANNOTATION: Final = _row(
    "in-place-restart-agent", "agent that admission adds to each pod",
    _words('"sidecar" or "supervisor"', "sidecar", "supervisor"), _IN_PLACE)
IN_PLACE_CONTAINER_ANNOTATION: Final = _agent(
    "container",
    "name of the worker, if a pod has several containers; without it, a sidecar restarts all",
    _ANY)
IN_PLACE_GRACE_ANNOTATION: Final = _agent(
    "grace-seconds", "time from SIGTERM to SIGKILL at a restart, for a checkpoint",
    _seconds(f"a number from 0 to {MAX_SECONDS}"), supervisor=_KUBELET, default="10")
IN_PLACE_END_CODES_ANNOTATION: Final = _agent(
    "end-pod-exit-codes", "exit codes that end the pod instead of restarting its group; "
    "those with which `podFailurePolicy` fails the Job are added", _CODES)
IN_PLACE_UNFIT_CODES_ANNOTATION: Final = _agent(
    "unfit-node-exit-codes", "exit codes that end the pod because its node is unfit", _CODES, _LOST)
IN_PLACE_BARRIER_PORT_ANNOTATION: Final = _agent(
    "barrier-port", "sidecar: port of the startup probe",
    _whole(1, 65535, "a port from 1 to 65535"),
    default="8080, or the next port that no container declares")
IN_PLACE_PROCESSES_ANNOTATION: Final = _agent(
    "processes", "number of processes of each worker, with ranks",
    _whole(1, MAX_PROCESSES, f'an integer from 1 to {MAX_PROCESSES}, such as "8"'),
    supervisor=_NO_PROCESSES)
IN_PLACE_STANDBY_ANNOTATION: Final = _agent(
    "standby", "standby process of each worker; `program`: the worker implements its contract",
    _words('"on", "off", or "program" for a program that keeps the contract itself',
           "on", "off", "program"), _STANDBY, _NO_PROCESSES,
    default="off; on with modules to preload")
IN_PLACE_PRELOAD_ANNOTATION: Final = _agent(
    "preload",
    "Python modules that a standby process imports; `auto`: those that the worker imported",
    Form(_MODULES, _modules), _STANDBY, _NO_PROCESSES)
IN_PLACE_STANDBY_DELAY_ANNOTATION: Final = _agent(
    "standby-delay-seconds", "time from the start of a worker to that of its standby process",
    _seconds(f"a number from 0 to {MAX_SECONDS}"), _STANDBY, _NO_PROCESSES, default="30",
    needs=(IN_PLACE_PRELOAD_ANNOTATION, IN_PLACE_STANDBY_ANNOTATION))
IN_PLACE_HANG_ANNOTATION: Final = _agent(
    "hang-seconds", "time after which a worker without a new step is hung; "
    "`auto`: five times the longest step seen, at least 30",
    _whole(1, MAX_HANG_S, _HANG, auto=True), _HANGS, _NO_FILE)
IN_PLACE_HANG_FIRST_ANNOTATION: Final = _agent(
    "hang-first-seconds", "the same until the first step", _whole(1, MAX_HANG_S, _HANG), _HANGS,
    _NO_FILE, default="no limit", needs=(IN_PLACE_HANG_ANNOTATION,))
IN_PLACE_HANG_SECTIONS_ANNOTATION: Final = _agent(
    "hang-sections", "the same within sections that the program reports",
    Form('words with whole seconds, such as "checkpoint=600,evaluate=1200"', _sections), _HANGS,
    _NO_FILE, needs=(IN_PLACE_HANG_ANNOTATION,))
IN_PLACE_HEALTH_ANNOTATION: Final = _agent(
    "health-command", "check of the machine before each epoch",
    Form("a command line for sh, at most 4096 characters", _command), _DEVICES, _NO_PROCESSES)
IN_PLACE_HEALTH_SECONDS_ANNOTATION: Final = _agent(
    "health-seconds", "time limit of that check",
    _seconds(f"a number of seconds above 0, at most {MAX_SECONDS}", least=0.001), _DEVICES,
    _NO_PROCESSES, default="2", needs=(IN_PLACE_HEALTH_ANNOTATION,))
IN_PLACE_HEALTH_INTERVAL_ANNOTATION: Final = _agent(
    "health-interval-seconds", "interval of that check in a pod that waits as a spare",
    _seconds(f"a number of seconds up to {MAX_SECONDS}, 0 for no checks of spares"), _DEVICES,
    _NO_PROCESSES, default="60", needs=(IN_PLACE_HEALTH_ANNOTATION,))
IN_PLACE_SPARES_ANNOTATION: Final = _agent(
    "spares", "number of spare pods that each Job gets in addition", _whole(0, MAX_SPARES), _SPARES,
    _NO_SEATS, default="0")
IN_PLACE_SPARE_JOBS_ANNOTATION: Final = _agent(
    "spare-replicas", "number of spare Jobs that each ReplicatedJob gets in addition",
    _whole(0, MAX_SPARES), _SPARES, _NO_SEATS, default="0")
MIN_PODS_ANNOTATION: Final = _agent(
    "min-pods", "fewest pods of each Job with which its workers continue while others are missing",
    _whole(1, MAX_MINIMUM), _ELASTIC, _NO_SEATS, since="0.3.0", default="all")
MIN_REPLICAS_ANNOTATION: Final = _agent(
    "min-replicas",
    "fewest Jobs of each ReplicatedJob that continue while pods of others are missing",
    _whole(1, MAX_MINIMUM), _ELASTIC, _NO_SEATS, since="0.3.0", default="all")
_MINIMA: Final = (MIN_PODS_ANNOTATION, MIN_REPLICAS_ANNOTATION)
MIN_PODS_AFTER_ANNOTATION: Final = _row(
    "in-place-restart-min-pods-after-seconds",
    "time for which missing pods are waited for before the others continue without them",
    _seconds(f"a number of seconds from 0 to {MAX_SECONDS}"), _ELASTIC, since="0.3.0",
    default="30", needs=_MINIMA)
GROW_AFTER_ANNOTATION: Final = _row(
    "in-place-restart-grow-after-seconds",
    "minimum time for which fewer pods run before all restart together",
    _seconds(f"a number of seconds from 0 to {MAX_SECONDS}"), _ELASTIC, since="0.3.0",
    default="60", needs=_MINIMA)
START_WITHOUT_SPARES_ANNOTATION: Final = _row(
    "in-place-restart-start-without-spares", "gangs and startup groups do not wait for spares",
    _SWITCH, _SPARES, default="false")
IN_PLACE_HEARTBEAT_ANNOTATION: Final = _agent(
    "heartbeat-seconds", "interval of heartbeats between supervisors; `auto`: 0.5",
    _seconds("a number of seconds from 0.1 to 10", least=0.1, most=10, auto=True), _LOST,
    "which sends none", levels=(Level.JOBSET,))
AFTER_SUCCESS_ANNOTATION: Final = _row(
    "in-place-restart-after-success", "restart of workers of which a pod has succeeded",
    _words("one of Continue, Recreate", "Continue", "Recreate"), _IN_PLACE, default="Continue")
PROGRESS_PATTERN_ANNOTATION: Final = _agent(
    "progress-pattern", "pattern of lines of the worker's output that show progress; the first "
    "group is the step; `auto`, or the name of a framework: what it prints",
    Form(_PATTERNS, _progress_pattern),
    _HANGS, _NO_OUTPUT)
LOG_RULES_ANNOTATION: Final = _agent(
    "log-rules", "rules on lines of the worker's output, in YAML",
    Form("a list of rules in YAML", _log_rules), _LOG_RULES, _NO_OUTPUT)
IN_PLACE_HANG_SIGNAL_ANNOTATION: Final = _agent(
    "hang-signal", "signal to a worker that is hung or breaks a log rule, before it is killed",
    Form("a signal that can be caught, as SIGUSR1", _signal), _HANGS, _NO_FILE,
    default="SIGABRT",
    needs=(IN_PLACE_HANG_ANNOTATION, LOG_RULES_ANNOTATION))
MAX_WITHOUT_PROGRESS_ANNOTATION: Final = _row(
    "in-place-restart-max-without-progress",
    "number of consecutive restarts without a new step after which the JobSet fails",
    _whole(1, 100_000), _HANGS)
RESTART_IN_PLACE_ANNOTATION: Final = _row(
    "restart-in-place", "each new value restarts the workers in place once, which is not counted",
    _ANY, _HANGS)
INJECTED_REQUESTS_ANNOTATION: Final = _row(
    "injected-requests", "resource requests of containers that admission adds", _AMOUNTS, _PLATFORM,
    levels=_BOTH)
INJECTED_LIMITS_ANNOTATION: Final = _row(
    "injected-limits", "resource limits of containers that admission adds", _AMOUNTS, _PLATFORM,
    levels=_BOTH)
INJECTED_ANNOTATIONS: Final = (INJECTED_REQUESTS_ANNOTATION, INJECTED_LIMITS_ANNOTATION)
_row(
    agent_keys.LOST_NODE_DEADLINE_ANNOTATION,
    "time after which pods on an unreachable node are given up",
    Form(_DEADLINE, _deadline), _LOST, default="the manager's `lostNodes.deadline`")
RESTART_BACKOFF_ANNOTATION: Final = _row(
    "restart-backoff", "first pause between restarts in quick succession, doubled each time",
    _duration(zero=", or 0 for none"), _POLICY,
    default="the manager's `restarts.backoff` or `restarts.recreationBackoff`")
RESTART_BACKOFF_MAX_ANNOTATION: Final = _row(
    "restart-backoff-max", "maximum of that pause", _DURATION, _POLICY,
    default="the manager's `restarts.maxBackoff`")
RESTART_BACKOFF_RESET_ANNOTATION: Final = _row(
    "restart-backoff-reset-after", "duration of a run that ends the series", _DURATION, _POLICY,
    default="the manager's `restarts.backoffResetAfter`")
MAX_RESTARTS_WINDOW_ANNOTATION: Final = _row(
    "max-restarts-window", "`maxRestarts` counts restarts within this time only", _DURATION,
    _POLICY)
RESTART_PACE_ANNOTATIONS: Final = (
    RESTART_BACKOFF_ANNOTATION,
    RESTART_BACKOFF_MAX_ANNOTATION,
    RESTART_BACKOFF_RESET_ANNOTATION,
    MAX_RESTARTS_WINDOW_ANNOTATION,
)
COSCHEDULING_ANNOTATION: Final = _row(
    "coscheduling", "scope of its gangs, which start together or not at all",
    _words("one of JobSet, ReplicatedJob, Job", "JobSet", "ReplicatedJob", "Job"), _GANGS)
COSCHEDULING_TARGETS_ANNOTATION: Final = _row(
    "coscheduling-targets", "ReplicatedJobs that take part",
    Form("names of replicatedJobs, with commas", _names), _GANGS, default="all",
    needs=(COSCHEDULING_ANNOTATION,))
COSCHEDULING_MIN_ANNOTATION: Final = _row(
    "coscheduling-min-available", "number of pods of a gang that start together",
    _whole(1, INT32_MAX, 'a number from 1, as text: "4"'), _GANGS, default="all",
    levels=(Level.JOBSET, Level.JOB), needs=(COSCHEDULING_ANNOTATION,))
COSCHEDULING_TIMEOUT_ANNOTATION: Final = _row(
    "coscheduling-timeout-seconds", "time for which nodes are held for an incomplete gang",
    _whole(1, 840, "a number from 1 to 840"), _GANGS, needs=(COSCHEDULING_ANNOTATION,))
COSCHEDULING_CAPACITY_ANNOTATION: Final = _row(
    "coscheduling-capacity-check",
    "without effect since 0.3.0: gangs are always tried", _SWITCH, _GANGS,
    needs=(COSCHEDULING_ANNOTATION,))
EXCLUSIVE_TOPOLOGY_ANNOTATION: Final = _row(
    f"{ALPHA_PREFIX}exclusive-topology", "label of nodes: one Job for each of its values", _ANY,
    _PLACEMENT, levels=(Level.JOBSET, Level.JOB))
NODE_SELECTOR_ANNOTATION: Final = _row(
    f"{ALPHA_PREFIX}node-selector", "exclusive placement by labels that nodes have already", _ANY,
    _PLACEMENT, levels=(Level.JOBSET, Level.JOB))
DISABLE_IN_PLACE_ANNOTATION: Final = _row(
    "disable-in-place-restart", "agents of the Go project lift the barrier and report nothing",
    _ANY, "how-to/migrate.md")
SKIP_SUSPEND_ANNOTATION: Final = _row(
    "skip-suspend-reconciliation", "queues of the Go project suspend and resume single Jobs", _ANY,
    "how-to/kueue-and-trainer.md", since="0.3.0")
SETTINGS_FROM_ANNOTATION: Final = _row(
    "settings-from", "written by admission: sources of the annotations that it has added", _ANY,
    _IN_PLACE, since="0.3.0")

COPIED_FIELDS_ANNOTATION: Final = _written(
    "copied-fields",
    "on a Job: fields of its pod template that came from the JobSet, which a resumption may remove")
# Users set it on a child Job, not on its template.
RESTART_ANNOTATION: Final = _written(
    "restart", "on a child Job, with any value: the Job is recreated, which is not counted")
_written(agent_keys.EPOCH_ANNOTATION, "epoch that the agent has reached")
_written(agent_keys.RESTART_CAUSE_ANNOTATION, "failure of the worker's last run, with its epoch")
_written(agent_keys.PROGRESS_ANNOTATION, "last step that the worker reported")
_written(agent_keys.FIRST_PROGRESS_ANNOTATION, "first step of the run, and the seconds until then")
_written(
    agent_keys.PACE_ANNOTATION,
    "step and steps per second, once a minute, of the first pod of a ReplicatedJob")
ATTEMPT_ANNOTATION: Final = _written(
    "in-place-restart-attempt", "epoch of an agent of the Go project, counted from 0")
_written(
    agent_keys.AGENT_STATE_ANNOTATION,
    "`parked` or `ready` (spares), `prepared` (worker of a smaller group, with its standby), "
    "`saving=SECONDS` (grace period), `unfit: REASON`")
_written(agent_keys.LOG_REPORT_ANNOTATION, "last line that a rule on the worker's output reports")
_written(agent_keys.UNHEARD_ANNOTATION, "neighbours that send no heartbeats")
_written(
    agent_keys.UNPROBED_ANNOTATION,
    "epoch and uptime at which an agent ended, since its kubelet had stopped probing it")
REPLACED_EARLY_ANNOTATION: Final = _written(
    "replaced-early", "number of predecessors in a row that ended before they had run")
COSCHEDULING_BACKEND_ANNOTATION: Final = _written(
    "coscheduling-backend", "backend for which the pods of a gang were created")
GROUP_ATTEMPT: Final = _written("group-scheduling-attempt", "attempt of a startup group")
GROUP_SIZE: Final = _written("group-scheduling-size", "number of pods of a startup group")
GROUP_TIMEOUT: Final = _written("group-scheduling-timeout", "timeout of a startup group")
EXECUTION_ATTEMPT_ANNOTATION: Final = _written(
    "execution-attempt", "attempt by `status.executionAttempts` of the Go project")
JOBSET_NAME: Final = _written("jobset-name", "name of the JobSet")
JOBSET_UID: Final = _written("jobset-uid", "UID of the JobSet")
REPLICATED_JOB_NAME: Final = _written("replicatedjob-name", "name of the ReplicatedJob")
REPLICATED_JOB_REPLICAS: Final = _written("replicatedjob-replicas", "number of its Jobs")
GLOBAL_REPLICAS: Final = _written("global-replicas", "number of Jobs of the JobSet")
JOB_INDEX: Final = _written("job-index", "index of the Job in its ReplicatedJob")
JOB_GLOBAL_INDEX: Final = _written("job-global-index", "index of the Job in the JobSet")
JOB_KEY: Final = _written("job-key", "hash of the namespace and name of the Job")
RESTART_ATTEMPT: Final = _written("restart-attempt", "number of restarts of all Jobs")
JOB_RESTART_ATTEMPT: Final = _written("job-restart-attempt", "number of restarts of the Job")
GROUP_NAME: Final = _written("group-name", "`groupName` of the ReplicatedJob")
GROUP_REPLICAS: Final = _written("group-replicas", "number of Jobs with this `groupName`")
JOB_GROUP_INDEX: Final = _written("job-group-index", "index of the Job among these")
COORDINATOR: Final = _written("coordinator", "address of the coordinator")
# fmt: on

SETTINGS: Final = {name: each for name, each in TABLE.items() if each.levels}
"""Annotations that users set on JobSets and their templates."""
