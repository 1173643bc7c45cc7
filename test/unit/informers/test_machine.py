"""The watch machine, step by step: inputs in, commands and events out."""

from __future__ import annotations

import msgspec
import pytest

from jobsetpy.client import WatchFrame
from jobsetpy.client._errors import error_from_response
from jobsetpy.errors import (
    ApiTimeoutError,
    ConnectFailedError,
    DecodeError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RetryableApiError,
    StreamBrokenError,
)
from jobsetpy.informers import WatchOptions
from jobsetpy.informers._events import (
    Applied,
    Bookmark,
    Deleted,
    ListCompleted,
    Listed,
    ListStarted,
)
from jobsetpy.informers._machine import (
    RESUME_S,
    STREAMING_TRIES,
    STUCK_LIMIT,
    OpenWatch,
    ReadFrames,
    RequestPage,
    Wait,
    WatchMachine,
    is_older,
)
from support.informers_kit import InformerLog, Meta, Thing


class Strict(msgspec.Struct, frozen=True):
    metadata: Meta
    size: int


def thing(name, rv, size=0):
    return Thing(Meta(name, "ns", f"uid-{name}", str(rv)), size)


def frame(type_, obj):
    return WatchFrame(type_, msgspec.Raw(msgspec.json.encode(obj)))


def raw(type_, text):
    return WatchFrame(type_, msgspec.Raw(text))


def added(name, rv):
    return frame("ADDED", thing(name, rv))


def bookmark(rv, **annotations):
    meta = {"resourceVersion": str(rv)}
    if annotations:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return frame("BOOKMARK", {"metadata": meta})


def error(code):
    return frame("ERROR", {"kind": "Status", "code": code, "reason": "Why", "message": "because"})


def machine(cls=Thing, *, rand=lambda: 0.5, **options):
    log = InformerLog()
    decode = msgspec.json.Decoder(cls).decode
    options = WatchOptions(observer=log, rand=rand, **options)
    made = WatchMachine(decode, kind="Thing", options=options)
    return made, log


def watching(version="10", **options):
    """A machine that has listed nothing at ``version`` and is about to open a watch."""
    made, log = machine(**options)
    made.on_page([], version, "")
    return made, log


def reading(version="10", at=0.0, **options):
    """A machine whose watch is open since ``at``."""
    made, log = watching(version, **options)
    made.on_opened(at)
    return made, log


def resume(made):
    """Go through the wait that follows a failure."""
    if isinstance(made.command, Wait):
        made.on_waited()


class TestLists:
    def test_first_command_is_the_first_page(self):
        """A new machine asks for the first page of a list."""
        made, _ = machine(page_limit=7)

        assert made.command == RequestPage("", 7)
        assert not made.listed

    def test_pages_become_one_list(self):
        """Several pages are one list, completed at the first page's resourceVersion."""
        made, _ = machine()

        first = made.on_page([thing("a", 1)], "10", "more")
        assert made.command == RequestPage("more", 500)
        second = made.on_page([thing("b", 2)], "11", "")

        assert first == [ListStarted(), Listed(thing("a", 1))]
        assert second == [Listed(thing("b", 2)), ListCompleted("10")]
        assert made.listed
        assert made.resource_version == "10"

    def test_watch_follows_the_list(self):
        """After the last page a watch is opened at the list's version."""
        made, _ = watching("10")

        assert made.command == OpenWatch("10", 450)

    @pytest.mark.parametrize("chance", [0.0, 0.3, 0.999])
    def test_server_timeout_is_jittered(self, chance):
        """The time-out that is requested from the server lies between 5 and 10 minutes."""
        made, _ = watching(rand=lambda: chance)

        assert isinstance(made.command, OpenWatch)
        assert 300 <= made.command.timeout_seconds < 600

    def test_failed_page_is_requested_again(self):
        """A page that fails is requested again with its token, after a jittered wait."""
        made, log = machine()
        made.on_page([], "10", "more")

        made.on_error(StreamBrokenError("cut"), 0.0)
        assert made.command == Wait(0.05)
        made.on_waited()

        assert made.command == RequestPage("more", 500)
        assert log.waits == [0.05]

    def test_retry_after_is_obeyed(self):
        """A server that sends Retry-After gets no request sooner."""
        made, _ = machine()
        busy = RetryableApiError(429)
        busy.retry_after = 7.0

        made.on_error(busy, 0.0)

        assert made.command == Wait(7.05)

    @pytest.mark.parametrize("opened", [False, True], ids=["list", "watch"])
    def test_wait_is_30_s_when_a_proxy_demands_half_an_hour(self, opened):
        """One 503 of a load balancer must not leave the cache stale for as long as it demands."""
        made, _ = machine()
        if opened:
            made.on_page([], "10", "")
        busy = error_from_response(503, {"retry-after": "1800"}, b"", verb="", target="")

        made.on_error(busy, 0.0)

        assert made.command == Wait(30.05)

    def test_list_backoff_grows_and_a_page_resets_it(self):
        """Waits grow with consecutive failures; a page that arrives ends the series."""
        made, log = machine()
        for _ in range(3):
            made.on_error(ConnectFailedError("no"), 0.0)
            made.on_waited()
        made.on_page([], "1", "more")
        made.on_error(ConnectFailedError("no"), 0.0)

        assert log.waits == [0.05, 0.1, 0.2, 0.05]

    @pytest.mark.parametrize("fault", [ExpiredError(410), InvalidError(400)])
    def test_list_begins_again_when_its_token_expires(self, fault):
        """An expired continue token causes a new list, the first time without a wait."""
        made, log = machine()
        made.on_page([thing("a", 1)], "10", "more")

        made.on_error(fault, 0.0)

        assert made.command == RequestPage("", 500)
        assert made.on_page([], "20", "") == [ListStarted(), ListCompleted("20")]
        assert log.relists == ["the continue token expired"]

    def test_list_is_requested_without_pages_when_tokens_keep_expiring(self):
        """If tokens expire twice in a row, the whole list is requested in one page."""
        made, _ = machine()
        for _ in range(2):
            made.on_page([], "10", "more")
            made.on_error(ExpiredError(410), 0.0)
        assert isinstance(made.command, Wait)
        made.on_waited()

        assert made.command == RequestPage("", 0)

    @pytest.mark.parametrize(
        "fault", [ForbiddenError(403), DecodeError("x", "", ""), ExpiredError(410)]
    )
    def test_first_page_is_retried_without_limit(self, fault):
        """No failure of the first page ends the machine; waits stay under the cap."""
        made, log = machine(backoff_cap_s=3.0)
        for _ in range(100):
            made.on_error(fault, 0.0)
            assert isinstance(made.command, Wait)
            made.on_waited()
            assert made.command == RequestPage("", 500)

        assert max(log.waits) == 1.5


class TestEvents:
    def test_changes_become_events(self):
        """Additions and changes are applied, deletions deleted, and the version advances."""
        made, _ = reading()

        events = made.on_frames(
            [added("a", 11), frame("MODIFIED", thing("a", 12)), frame("DELETED", thing("a", 13))],
            1.0,
        )

        assert events == [Applied(thing("a", 11)), Applied(thing("a", 12)), Deleted(thing("a", 13))]
        assert made.resource_version == "13"
        assert isinstance(made.command, ReadFrames)

    def test_bookmark_moves_the_version(self):
        """A bookmark is passed on, and the next watch resumes from it."""
        made, _ = reading()

        assert made.on_frames([bookmark(50)], 1.0) == [Bookmark("50")]
        made.on_eof(60.0)
        assert isinstance(made.command, OpenWatch)
        assert made.command.resource_version == "50"

    def test_repeated_history_is_dropped(self):
        """Events older than the last version are dropped; no object reappears."""
        made, _ = reading()
        made.on_frames([added("a", 11), frame("DELETED", thing("a", 12))], 1.0)

        events = made.on_frames([added("a", 11), frame("DELETED", thing("a", 12))], 2.0)

        assert events == [Deleted(thing("a", 12))]
        assert made.resource_version == "12"

    def test_opaque_versions_are_accepted_in_any_order(self):
        """resourceVersions that are not numbers are never compared."""
        made, _ = reading("zz")

        assert made.on_frames([added("a", "b"), added("a", "a")], 1.0) == [
            Applied(thing("a", "b")),
            Applied(thing("a", "a")),
        ]
        assert made.resource_version == "a"

    def test_undecodable_change_is_skipped_and_reported_once(self):
        """An object that does not fit is left out and reported once; the version advances."""
        made, log = reading()
        bad = {"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "12"}, "size": "big"}

        events = made.on_frames([frame("MODIFIED", bad)] * 2 + [added("b", 13)], 1.0)

        assert events == [Applied(thing("b", 13))]
        assert log.bad == [("ns", "a")]
        assert made.resource_version == "13"

    def test_reports_are_bounded(self, monkeypatch):
        """Reported objects are remembered up to a limit."""
        monkeypatch.setattr("jobsetpy.informers._reading.REPORTED_LIMIT", 2)
        made, log = reading()
        for name in "aabbcca":
            bad = {"metadata": {"name": name}, "size": "big"}
            made.on_frames([frame("ADDED", bad)], 1.0)

        assert [name for _, name in log.bad] == ["a", "b", "c", "a"]

    def test_undecodable_deletion_keeps_the_identity(self):
        """A deletion is never missed: the object is built from its identity alone."""
        made, _ = reading()
        bad = {
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "12"},
            "size": [],
        }

        events = made.on_frames([frame("DELETED", bad)], 1.0)

        assert events == [Deleted(Thing(Meta("a", "ns", "u", "12")), final_state_known=False)]

    def test_undecodable_deletion_of_a_strict_model_is_reported(self):
        """A deletion cannot be shown by a model that requires more than an identity."""
        made, log = reading(cls=Strict)
        bad = {"metadata": {"name": "a", "resourceVersion": "12"}}

        assert made.on_frames([frame("DELETED", bad)], 1.0) == []
        assert log.bad == [("", "a")]

    @pytest.mark.parametrize(
        "line",
        [
            raw("ADDED", b"[]"),
            raw("MODIFIED", b'{"metadata": 3}'),
            raw("DELETED", b"{}"),
            raw("BOOKMARK", b"7"),
            raw("BOOKMARK", b'{"metadata": {}}'),
            raw("NONSENSE", b"{}"),
            raw("ADDED", b'{"size":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        ],
    )
    def test_invalid_lines_are_ignored(self, line):
        """Lines without a valid event change nothing."""
        made, _ = reading()

        assert made.on_frames([line], 1.0) == []
        assert made.resource_version == "10"
        assert isinstance(made.command, ReadFrames)


class TestEnds:
    @pytest.mark.parametrize(("end", "cause"), [("on_eof", "eof"), ("on_silence", "silence")])
    def test_watch_resumes_immediately_after(self, end, cause):
        """A watch that ends or is silent resumes from the last version: no list, no wait."""
        made, log = reading()
        made.on_frames([added("a", 11)], 1.0)

        getattr(made, end)(300.0)

        assert isinstance(made.command, OpenWatch)
        assert made.command.resource_version == "11"
        assert log.ends == [cause]
        assert log.relists == []

    def test_repeated_quick_ends_back_off(self):
        """Streams that repeatedly end right after they opened are opened at growing intervals."""
        made, _ = watching()
        waits = []
        for _ in range(5):
            made.on_opened(0.0)
            made.on_eof(0.01)
            if isinstance(made.command, Wait):
                waits.append(made.command.seconds)
            resume(made)
            assert isinstance(made.command, OpenWatch)

        assert waits == [0.05, 0.1, 0.2, 0.4]

    def test_a_long_stream_resets_the_backoff(self):
        """After a stream of some length the next end is resumed without a wait."""
        made, _ = watching()
        for end in (0.01, 0.01, 5.0):
            made.on_opened(0.0)
            made.on_eof(end)
            resume(made)

        assert isinstance(made.command, OpenWatch)

    def test_quick_ends_with_progress_wait_briefly(self):
        """A watch that a busy server ends after each event is resumed within a tenth of a second."""
        made, _ = watching()
        version = 10
        for _ in range(20):
            made.on_opened(0.0)
            version += 1
            made.on_frames([added("a", version)], 0.01)
            made.on_eof(0.02)
            if isinstance(made.command, Wait):
                assert made.command.seconds <= 0.1
                made.on_waited()

        assert made.resource_version == "30"

    @pytest.mark.parametrize(
        "fault", [StreamBrokenError("cut"), ApiTimeoutError("late"), RetryableApiError(503)]
    )
    def test_broken_stream_resumes_after_jitter(self, fault):
        """A watch that breaks resumes from the same version after a short jittered wait."""
        made, log = reading()

        made.on_error(fault, 2.0)
        assert made.command == Wait(0.05)
        resume(made)

        assert made.command == OpenWatch("10", 450)
        made.on_opened(2.1)
        assert isinstance(made.command, ReadFrames)
        assert log.ends == ["broken"]
        assert log.relists == []

    @pytest.mark.parametrize(
        "failure", [*(error(code) for code in (429, 500, 503, 504)), raw("ERROR", b"[]")]
    )
    def test_error_event_resumes(self, failure):
        """An ERROR event other than 410 backs off and resumes; later frames are ignored."""
        made, log = reading()

        events = made.on_frames([added("a", 11), failure, added("b", 12)], 20.0)
        assert isinstance(made.command, Wait)
        resume(made)

        assert events == [Applied(thing("a", 11))]
        assert made.command == OpenWatch("11", 450)
        assert log.ends == ["error"]


class TestExpiry:
    def test_error_event_410_lists_again(self):
        """An ERROR event 410 causes a new list immediately."""
        made, log = reading()

        made.on_frames([error(410)], 20.0)

        assert made.command == RequestPage("", 500)
        assert not made.listed
        assert log.ends == ["expired"]

    def test_status_410_lists_again(self):
        """A watch that is refused with 410 causes a new list, whose version may be lower."""
        made, _ = watching("100")

        made.on_error(ExpiredError(410), 0.0)
        assert made.command == RequestPage("", 500)
        made.on_page([], "5", "")

        assert made.resource_version == "5"
        assert isinstance(made.command, OpenWatch)

    def test_410_after_an_outage_lists_immediately(self):
        """Waits grow while the server is unreachable; its first answer resets them."""
        made, _ = watching()
        for _ in range(8):
            made.on_error(RetryableApiError(429), 0.0)
            assert isinstance(made.command, Wait)
            resume(made)

        made.on_error(ExpiredError(410), 0.0)

        assert made.command == RequestPage("", 500)

    def test_repeated_410_backs_off(self):
        """The sequence list, 410, list, 410 does not become a storm of lists."""
        made, _ = watching()
        waits = 0.0
        for _ in range(10):
            made.on_error(ExpiredError(410), 0.0)
            if isinstance(made.command, Wait):
                waits += made.command.seconds
                made.on_waited()
            made.on_page([], "10", "")

        assert waits > 10

    @pytest.mark.parametrize("fault", [InvalidError(400), NotFoundError(404)])
    def test_refused_watch_lists_again(self, fault):
        """A watch that the server will never accept causes a new list after a wait."""
        made, log = watching()

        made.on_error(fault, 0.0)
        made.on_waited()

        assert made.command == RequestPage("", 500)
        assert log.relists == ["the server refuses the watch"]

    @pytest.mark.parametrize("fault", [DecodeError("x", "", ""), RetryableApiError(500)])
    def test_version_is_abandoned_when_it_keeps_failing(self, fault):
        """A version from which the server cannot continue is replaced by a new list."""
        made, _ = watching()
        for _ in range(STUCK_LIMIT):
            made.on_opened(0.0)
            made.on_error(fault, 0.0)
            resume(made)

        assert made.command == RequestPage("", 500)

    @pytest.mark.parametrize("opens", [True, False])
    @pytest.mark.parametrize("fault", [RetryableApiError(429), StreamBrokenError("no")])
    def test_temporary_failures_never_list(self, fault, opens):
        """Neither a busy server nor a network that breaks streams causes a list."""
        made, log = watching()
        for _ in range(5 * STUCK_LIMIT):
            if opens or not isinstance(fault, RetryableApiError):
                made.on_opened(0.0)
            made.on_error(fault, 0.0)
            resume(made)

        assert isinstance(made.command, OpenWatch)
        assert log.relists == []


class TestSilence:
    @pytest.mark.parametrize(("chance", "deadline"), [(0.0, 30.0), (0.5, 37.5), (1.0, 45.0)])
    def test_deadline_is_between_30_and_45_seconds(self, chance, deadline):
        """The idle deadline is random for each stream and never above 45 s."""
        made, _ = reading(rand=lambda: chance)

        assert ReadFrames(deadline) == made.command

    def test_watch_after_silence_probes(self):
        """After silence the requested time-out of the watch is shorter than the idle deadline."""
        made, _ = reading()
        made.on_silence(37.5)
        assert made.command == OpenWatch("10", 32)

        made.on_opened(38.0)
        made.on_frames([bookmark(70)], 68.0)
        made.on_eof(70.0)
        assert made.command == OpenWatch("70", 32)

    def test_an_object_ends_probing(self):
        """After an event, watches have their normal length again."""
        made, _ = reading()
        made.on_silence(37.5)
        made.on_opened(38.0)
        made.on_frames([added("a", 11)], 39.0)
        made.on_eof(70.0)

        assert made.command == OpenWatch("11", 450)

    def test_short_deadlines_do_not_probe(self):
        """With an idle deadline of a few seconds, the server would end watches too often."""
        made, _ = reading(idle_timeout_s=12.0)
        made.on_silence(10.0)

        assert made.command == OpenWatch("10", 450)


def broken(made):
    """The connection breaks, which is noticed late, or when the process has been frozen."""
    made.on_frames([bookmark(10)], 20.0)
    made.on_error(StreamBrokenError("cut"), 20.1 + RESUME_S)
    made.on_waited()
    made.on_opened(20.2 + RESUME_S)


def refused(made):
    """It breaks, and the next attempt is refused."""
    made.on_error(StreamBrokenError("cut"), 0.1)
    made.on_waited()
    made.on_error(RetryableApiError(503), 0.2)
    made.on_waited()
    made.on_opened(0.3)


def ended_early(made):
    """The server stops, and another is there when the back-off is over."""
    made.on_eof(20.0)
    made.on_opened(20.0)


def silent(made):
    """Neither a silent watch nor the probe after it shows a bookmark."""
    made.on_silence(37.5)
    made.on_opened(38.0)
    made.on_eof(70.0)


def unconfirmed(made):
    """No end was early, but nothing has come for ten minutes."""
    for opened in (0.0, 450.0):
        made.on_eof(opened + 450.0)
        if isinstance(made.command, OpenWatch):
            made.on_opened(opened + 450.0)


def older_bookmark(made):
    """A server that filters nothing sends a bookmark of its own history."""
    made.on_frames([bookmark(7), added("a", 11)], 20.0)


class TestAnotherHistory:
    @pytest.mark.parametrize(
        "end", [broken, refused, ended_early, silent, unconfirmed, older_bookmark]
    )
    @pytest.mark.parametrize(("version", "rewound"), [("6", True), ("12", False)])
    def test_server_is_listed_again_when_it_may_be_another(self, end, version, rewound):
        """Its history may be older, or may have passed the last version in the meantime."""
        made, log = reading()
        end(made)

        assert made.command == RequestPage("", 500)
        assert len(log.relists) == 1
        assert made.on_page([], version, "") == [ListStarted(rewound), ListCompleted(version)]
        assert made.command == OpenWatch(version, made.command.timeout_seconds)
        made.on_opened(500.0)
        assert made.on_frames([added("a", 13)], 500.0) == [Applied(thing("a", 13))]

    @pytest.mark.parametrize("idle", [45.0, 120.0])
    def test_idle_watch_with_bookmarks_lists_nothing(self, idle):
        """An hour of bookmarks costs no list, no matter how the watches end."""
        made, _ = reading(idle_timeout_s=idle)
        now = 0.0
        for version in range(11, 70):
            now += 60.0
            made.on_frames([bookmark(version)], now)
            made.on_eof(now + 2.0)
            made.on_opened(now + 2.0)
            assert isinstance(made.command, ReadFrames)

    def test_idle_watch_without_bookmarks_lists_once_in_ten_minutes(self):
        """A collection that never changes may have none (etcd without progress notifications)."""
        made, log = reading()
        made.on_silence(37.5)
        now = 37.5
        while now < 3600.0:
            if isinstance(made.command, RequestPage):
                made.on_page([], "10", "")
            made.on_opened(now)
            now += made.command.idle_s - 5.0
            made.on_eof(now)

        assert log.relists == 6 * ["nothing confirms the resourceVersion"]

    def test_streaming_list_is_repeated_when_it_turns_out_to_be_rewound(self):
        """Only its end shows the version, when its objects have been passed on as usual."""
        made, _ = machine(streaming=True)
        made.on_opened(0.0)
        made.on_frames([bookmark(10, end=True)], 0.0)
        made.on_frames([error(410)], 1.0)
        made.on_opened(1.0)

        first = made.on_frames([added("a", 3), bookmark(5, end=True)], 1.0)
        made.on_opened(1.0)
        second = made.on_frames([added("a", 3), bookmark(5, end=True)], 1.0)

        assert first == [ListStarted(), Listed(thing("a", 3))]
        assert second == [
            ListStarted(rewound=True),
            Listed(thing("a", 3)),
            ListCompleted("5"),
        ]

    def test_list_begins_again_when_its_token_is_from_the_future(self):
        """The server with the older history answers 500 for ever."""
        made, log = machine()
        made.on_page([], "10", "more")
        for _ in range(STUCK_LIMIT):
            made.on_error(RetryableApiError(500), 0.0)
            made.on_waited()

        assert made.command == RequestPage("", 500)
        assert log.relists == ["the list cannot get past its continue token"]


class TestStreamingLists:
    def test_initial_events_become_a_list(self):
        """Events up to the marked bookmark are a list; after it the same stream is the watch."""
        made, _ = machine(streaming=True)
        assert made.command == OpenWatch("", 450, send_initial_events=True)
        made.on_opened(0.0)

        first = made.on_frames([added("a", 5), added("b", 3)], 0.1)
        second = made.on_frames([bookmark(4), bookmark(10, end=True), added("c", 11)], 0.2)

        assert first == [ListStarted(), Listed(thing("a", 5)), Listed(thing("b", 3))]
        assert second == [ListCompleted("10"), Applied(thing("c", 11))]
        assert isinstance(made.command, ReadFrames)

    def test_changes_before_the_mark_change_the_list(self):
        """A deletion before the marked bookmark is passed on within the list."""
        made, _ = machine(streaming=True)
        made.on_opened(0.0)

        events = made.on_frames(
            [added("a", 5), frame("MODIFIED", thing("a", 6)), frame("DELETED", thing("a", 7))], 0.1
        )

        assert events == [
            ListStarted(),
            Listed(thing("a", 5)),
            Listed(thing("a", 6)),
            Deleted(thing("a", 7)),
        ]

    def test_list_is_empty_when_there_are_no_objects(self):
        """The marked bookmark alone completes an empty list."""
        made, _ = machine(streaming=True)
        made.on_opened(0.0)

        assert made.on_frames([bookmark(10, end=True)], 0.1) == [ListStarted(), ListCompleted("10")]

    def test_refusal_falls_back_to_pages(self):
        """If a server refuses streaming lists, pages are requested immediately and from then on."""
        made, _ = machine(streaming=True)

        made.on_error(InvalidError(422), 0.0)
        assert made.command == RequestPage("", 500)
        made.on_page([], "10", "")
        made.on_opened(0.0)
        made.on_frames([error(410)], 20.0)

        assert made.command == RequestPage("", 500)

    @pytest.mark.parametrize("end", ["on_eof", "on_silence"])
    def test_no_mark_falls_back_to_pages(self, end):
        """A stream that ends or is silent before the mark comes from a server without streaming."""
        made, _ = machine(streaming=True)
        made.on_opened(0.0)
        made.on_frames([added("a", 5)], 0.1)

        getattr(made, end)(40.0)

        assert made.command == RequestPage("", 500)

    def test_broken_streaming_list_begins_again(self):
        """A streaming list that breaks is tried again, and finally replaced by pages."""
        made, _ = machine(streaming=True)
        for _ in range(STREAMING_TRIES - 1):
            made.on_opened(0.0)
            made.on_frames([added("a", 5)], 0.1)
            made.on_error(StreamBrokenError("cut"), 0.2)
            made.on_waited()
            assert isinstance(made.command, OpenWatch)
            assert made.command.send_initial_events
        made.on_opened(0.0)
        made.on_frames([error(503)], 0.1)

        assert made.command == RequestPage("", 500)

    def test_expiry_streams_again(self):
        """After 410 a machine that can stream lists does so again."""
        made, _ = machine(streaming=True)
        made.on_opened(0.0)
        made.on_frames([bookmark(10, end=True), error(410)], 20.0)

        assert made.command == OpenWatch("", 450, send_initial_events=True)


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("99999999999999999999", "100000000000000000000", True),
        ("", "10", False),
        ("a", "b", False),
        ("1", "b", False),
    ],
)
def test_versions_compare_as_integers(version, than, older):
    """Versions compare as integers of any size; other versions are never older."""
    assert older is is_older(version, than)
