"""Early detection with delayed statuses: no unnecessary restart, and no missing one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jobsetpy.aio import ManualClock
from jobsetpy.api._wire import evolve
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import expected_pods, record_of
from jobsetpy.reconcilers.restart_in_place.epochs.budget import account
from jobsetpy.reconcilers.restart_in_place.history.memory import EpochState
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.observed.ledger import EpochLedger
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.rules.membership import AttemptKey
from jobsetpy.reconcilers.rules.times import Now
from support.jobsets import replicated_job
from support.restarts.epoch_plans import RULE, job, jobset, pod

SIZE = 3
NAMES = [f"p{i}" for i in range(SIZE)]
WORKER = {"name": "worker", "restartPolicy": "Never", "restartPolicyRules": [RULE]}

WAITING = {"waiting": {"reason": "PodInitializing"}}
RUNNING = {"running": {"startedAt": None}}


def ended(code):
    """Return a container state."""
    return {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": None}}


def make_jobset():
    """Return a JobSet of three pods with a practically unlimited budget."""
    item = replicated_job("w", parallelism=SIZE, pod_spec={"containers": [WORKER]})
    return jobset(0, items=[item], max_restarts=10**6)


class Manager:
    """A manager's ledger and plans, with caches that the test fills."""

    def __init__(self, jobset, job, clock):
        self.jobset = jobset
        self.job = job
        self.ledger = EpochLedger()
        self.ledger.job_changed(None, job)
        self.memory = EpochState()
        self.pods = {}
        self.clock = clock

    def sees(self, pod):
        """Receive a pod's event, as its handler does."""
        old = self.pods.get(pod.metadata.name)
        self.pods[pod.metadata.name] = pod
        self.ledger.pod_changed(old, pod, self.clock.monotonic())

    def reconcile(self, stored):
        """Plan for the cached JobSet, and again for the stored one if that differs; return its status.

        The written status is noted as the API server's answer.
        """
        plan = self.plan(self.jobset)
        if plan.status is not None and self.jobset is not stored:
            self.jobset = stored
            plan = self.plan(stored)
        notes = self.ledger.notes(AttemptKey.of(stored))
        if plan.status is not None:
            self.note(plan.status.status)
        self.ledger.forget_notes(AttemptKey.of(stored), notes)
        self.memory = plan.memory
        return None if plan.status is None else plan.status.status

    def plan(self, jobset):
        """Plan as the real reconciler does before it writes."""
        self.note(jobset.status)
        group = AttemptKey.of(jobset)
        observed = ObservedEpochs(
            jobset=jobset,
            pods=self.ledger.histogram(group),
            notes=self.ledger.notes(group),
            job_of=lambda _pod: self.job,
            members=lambda: ([self.job], list(self.pods.values())),
        )
        return plan_epochs(observed, self.memory, Now(self.clock.now(), self.clock.monotonic()))

    def note(self, status):
        """Note a status that was seen or written."""
        self.ledger.note_status(
            AttemptKey.of(self.jobset),
            status,
            self.ledger.newest_version,
            self.clock.monotonic(),
        )


class EarlyMachine(RuleBasedStateMachine):
    """Pods, their kubelets and agents, and a manager, each with a delayed view of the others.

    A kubelet sends one status at a time, the latest, and each takes any time to be stored. The
    manager receives the pods' versions one by one.
    """

    def __init__(self):
        super().__init__()
        self.clock = ManualClock()
        self.jobset = make_jobset()
        self.job = job(spec={"parallelism": SIZE, "completions": SIZE})
        self.version = 100
        self.stored = dict.fromkeys(NAMES)  # annotation and state in the API server
        self.truth = dict.fromkeys(NAMES, WAITING)
        self.restarts = dict.fromkeys(NAMES, 0)
        self.flying = dict.fromkeys(NAMES)
        self.epoch = dict.fromkeys(NAMES, 0)  # of the agent; 0 while it does not run
        self.history = {name: [] for name in NAMES}
        self.failed_at = set()
        self.manager = Manager(self.jobset, self.job, self.clock)
        for name in NAMES:
            self.store(name, annotation=None, status=(WAITING, 0))

    # -- the API server -----------------------------------------------------------------------

    def store(self, name, **changes):
        """Write to a pod."""
        self.version += 1
        now = dict(self.stored[name] or {})
        now.update(changes)
        self.stored[name] = now
        state, restarts = now["status"]
        worker = {"name": "worker", "state": state, "restartCount": restarts}
        meta = {"resourceVersion": str(self.version)}
        self.history[name].append(pod(name, now["annotation"], containers=[worker], meta=meta))

    def set_status(self, **changes):
        """Write to the JobSet's status; the manager's cache follows later."""
        self.jobset = evolve(self.jobset, status=evolve(self.jobset.status, **changes))

    # -- pods ---------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def kubelet_sends(self, name):
        """The kubelet sends its latest status, unless one is being sent."""
        if self.flying[name] is None:
            self.flying[name] = (self.truth[name], self.restarts[name])

    @rule(name=st.sampled_from(NAMES))
    def status_arrives(self, name):
        """The status that was being sent is stored."""
        if self.flying[name] is not None:
            if self.stored[name]["status"] != self.flying[name]:
                self.store(name, status=self.flying[name])
            self.flying[name] = None

    @rule(name=st.sampled_from(NAMES))
    def agent_starts(self, name):
        """The agent of a pod whose containers have ended joins the next epoch."""
        if self.epoch[name]:
            return
        status = self.jobset.status
        self.truth[name] = WAITING
        self.epoch[name] = max(status.synced_epoch, status.deprecated_epoch) + 1
        if self.stored[name]["annotation"] != str(self.epoch[name]):
            self.store(name, annotation=str(self.epoch[name]))

    @rule(name=st.sampled_from(NAMES))
    def agent_acts(self, name):
        """The agent reads the status: its pod restarts, or its worker may run."""
        epoch, status = self.epoch[name], self.jobset.status
        if not epoch:
            return
        if epoch <= status.deprecated_epoch:
            if self.truth[name] is RUNNING:
                self.truth[name] = ended(137)
            self.epoch[name] = 0
            self.restarts[name] += 1
        elif epoch == status.synced_epoch and self.truth[name] is WAITING:
            self.truth[name] = RUNNING

    @rule(name=st.sampled_from(NAMES), code=st.sampled_from([0, 1, 137]))
    def worker_ends(self, name, code):
        """A worker ends; with another code than 0 its whole pod restarts."""
        if self.truth[name] is not RUNNING or code == 0:
            return
        self.truth[name] = ended(code)
        self.failed_at.add(self.epoch[name])
        if self.reports_end(name):
            self.kubelet_sends(name)
        self.epoch[name] = 0
        self.restarts[name] += 1

    def reports_end(self, name):
        """Return whether the kubelet reports an end before it restarts the pod, as it usually does."""
        return self.restarts[name] % 3 != 2

    # -- the manager --------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def manager_sees_pod(self, name):
        """The manager receives the next version of a pod."""
        if self.history[name]:
            self.manager.sees(self.history[name].pop(0))

    @rule()
    def manager_sees_jobset(self):
        """The manager receives the current JobSet."""
        self.manager.jobset = self.jobset

    @rule()
    def manager_decides(self):
        """The manager runs a pass; a decision for an old JobSet is refused and repeated."""
        status = self.manager.reconcile(self.jobset)
        if status is not None:
            self.set_status(
                synced_epoch=status.synced_epoch,
                deprecated_epoch=status.deprecated_epoch,
                in_place_restart=status.in_place_restart,
            )
            self.manager.jobset = self.jobset

    @rule()
    def protocol_continues(self):
        """Agents and manager act in turn while the kubelets' statuses are delayed."""
        for name in NAMES:
            self.agent_starts(name)
            self.agent_acts(name)
            while self.history[name]:
                self.manager_sees_pod(name)
        self.manager_sees_jobset()
        self.manager_decides()
        self.manager_sees_jobset()

    @rule()
    def statuses_arrive(self):
        """All kubelets have sent their status, and it is stored."""
        for name in NAMES:
            self.status_arrives(name)
            self.kubelet_sends(name)
            self.status_arrives(name)

    @rule()
    def manager_fails_over(self):
        """Another manager starts with the stored objects."""
        self.manager = Manager(self.jobset, self.job, self.clock)
        for name in NAMES:
            last = self.history[name][-1:]
            self.history[name].clear()
            for each in last or [self.manager_pod(name)]:
                self.manager.sees(each)

    def manager_pod(self, name):
        """Return the pod as it is stored."""
        self.store(name)
        return self.history[name].pop()

    @precondition(lambda self: not any(self.flying.values()))
    @rule()
    def a_minute_passes(self):
        """Long enough for every kubelet to send its latest status."""
        for name in NAMES:
            self.manager_is_told(name)
        self.clock.advance(60)

    # -- invariants ---------------------------------------------------------------------------

    @invariant()
    def no_restart_without_a_failure(self):
        """Every epoch that is over ended because a worker failed in it."""
        over = max(self.jobset.status.deprecated_epoch, *self.epoch.values()) - 1
        assert self.jobset.status.deprecated_epoch <= self.jobset.status.synced_epoch
        assert set(range(1, max(over, self.jobset.status.deprecated_epoch) + 1)) <= self.failed_at

    @invariant()
    def no_worker_runs_alone(self):
        """A worker runs at the synced epoch only, which every pod has reached."""
        for name in NAMES:
            if self.truth[name] is RUNNING:
                assert self.epoch[name] <= self.jobset.status.synced_epoch

    @invariant()
    def each_restart_is_charged_once(self):
        """The budget counts epochs."""
        newest = self.jobset.status.synced_epoch
        charged = account(self.jobset, newest, expected_pods(self.jobset))
        assert charged.spent == max(0, newest - 1)
        assert record_of(self.jobset).uncounted_epochs == 0

    def turn(self, name):
        """Let a pod's agent and kubelet act, and the manager see the result."""
        self.agent_starts(name)
        self.agent_acts(name)
        self.manager_is_told(name)

    def manager_is_told(self, name):
        """Let the kubelet send a pod's status, and the manager see it."""
        self.kubelet_sends(name)
        self.status_arrives(name)
        while self.history[name]:
            self.manager_sees_pod(name)

    def teardown(self):
        """When nothing fails any longer, all workers run."""
        for _ in range(8):
            for name in NAMES:
                self.turn(name)
                self.manager_sees_jobset()
                self.manager_decides()

        assert all(self.truth[name] is RUNNING for name in NAMES)
        assert set(self.epoch.values()) == {self.jobset.status.synced_epoch}


TestEarly = EarlyMachine.TestCase
TestEarly.settings = settings(max_examples=80, stateful_step_count=60)


@given(st.integers(0, SIZE - 1), st.sampled_from([1, 7, 255]))
def test_failure_is_detected_immediately(number, code):
    """With current statuses, a worker's end deprecates its epoch before its agent is back."""
    machine = EarlyMachine()
    for _ in range(4):
        for name in NAMES:
            machine.turn(name)
        machine.manager_decides()
        machine.manager_sees_jobset()
    assert all(machine.truth[name] is RUNNING for name in NAMES)

    machine.worker_ends(NAMES[number], code)
    machine.status_arrives(NAMES[number])
    machine.manager_sees_pod(NAMES[number])
    machine.manager_decides()

    assert (machine.jobset.status.synced_epoch, machine.jobset.status.deprecated_epoch) == (1, 1)
    assert machine.manager.memory.cause.container.exit_code == code
