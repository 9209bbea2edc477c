"""The audit of a producer against a complete broker, in virtual time."""

from __future__ import annotations

import random
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from plog.audit import AUDIT_TOPIC, FindingKind, producer_of
from plog.client.errors import DeliveryTimedOut
from plog.client.producer import audit_reporter
from plog.client.values import ProducerRecord
from plog.errors import ErrorCode, MessageTooLarge
from plog.wire.messages.create_topics import CreateTopicsRequest
from plog.wire.messages.produce import ProduceRequest
from plog.wire.schema import ApiMessage
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.client.producer.audit_site import (
    AUDITED,
    PRODUCER,
    findings_of,
    ledger_of,
    reported,
    reports_of,
)
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite, ready

INTERVAL_MS = audit_reporter.REPORT_INTERVAL_S * 1000


def audited(**options: Any) -> ProducerSite:
    return ready(**AUDITED, **options)


def is_report(request: ApiMessage) -> bool:
    return isinstance(request, ProduceRequest) and request.topic_data[0].name == AUDIT_TOPIC


# -- counts ---------------------------------------------------------------------------------------


def test_acknowledged_records_are_reported_when_producer_closes() -> None:
    site = audited()
    site.sent(b"a", b"b", timestamp=61_000)
    site.sent(b"c", timestamp=200_000)
    site.run(site.core.close())
    assert findings_of(site) == []
    assert sum(records for _, records, _ in reported(site)) == 3
    assert [report.is_final for report in reports_of(site)][-1]
    assert {report.producer for report in reports_of(site)} == {PRODUCER}


def test_first_report_is_sent_immediately_and_others_every_interval() -> None:
    site = audited()
    site.sent(b"a")
    site.flush()
    site.sim.advance(1000)
    assert reported(site) == [(1, 1, 0)]
    site.sent(b"b", b"c")
    site.flush()
    site.sim.advance(INTERVAL_MS - 2000)
    assert len(reports_of(site)) == 1
    site.sim.advance(2000)
    assert reported(site) == [(1, 1, 0), (2, 2, 0)]
    site.sim.advance(5 * INTERVAL_MS)
    assert len(reports_of(site)) == 2


def test_producer_without_records_sends_no_report() -> None:
    site = audited()
    site.sim.advance(3 * INTERVAL_MS)
    site.run(site.core.close())
    assert not any(map(is_report, site.sim.requests))


def test_producer_that_is_not_audited_sends_no_header_and_no_report() -> None:
    site = ready()
    site.sent(b"a")
    site.run(site.core.close())
    assert site.records()[0].headers == ()
    assert not any(map(is_report, site.sim.requests))


def test_each_record_names_the_producer_once() -> None:
    site = audited()
    site.sent(b"a")
    site.sent(b"b", headers={"x": b"1", "plog.audit": b"other"})
    site.flush()
    own = ("plog.audit", b"web-1")
    assert [record.headers for record in site.records()] == [(own,), (("x", b"1"), own)]


def test_serialized_value_of_changed_record_is_counted() -> None:
    class Change:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            assert record.headers == ()
            return record._replace(value=record.value + "!")

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            pass

        def close(self) -> None:
            pass

    site = audited(core={"value_serializer": str.encode, "interceptors": [Change()]})
    site.core.send(TOPIC, "a")
    site.run(site.core.close())
    assert site.values() == [b"a!"]
    assert findings_of(site) == []


def test_null_value_counts_as_empty() -> None:
    site = audited()
    site.core.send(TOPIC, None, b"k")
    site.run(site.core.close())
    assert findings_of(site) == []
    assert reported(site)[0] == (1, 1, 0)


def test_records_count_in_the_window_of_log_append_time() -> None:
    site = audited(topic={"message_timestamp_type": "LogAppendTime"})
    site.sent(b"a", b"b", timestamp=1_000)
    site.run(site.core.close())
    assert findings_of(site) == []


def test_batch_that_is_split_is_counted_once() -> None:
    site = audited(topic={"max_message_bytes": "400"})
    site.sent(*[b"x" * 50] * 20)
    site.run(site.core.close())
    assert len(site.records()) == 20
    assert findings_of(site) == []


def test_records_sent_to_the_topic_of_reports_are_not_counted() -> None:
    site = audited()
    create_topic(site.sim.broker, AUDIT_TOPIC)
    site.know(AUDIT_TOPIC)
    site.core.send(AUDIT_TOPIC, b"copy of a report")
    site.run(site.core.close())
    assert len(site.records(topic=AUDIT_TOPIC)) == 1


@pytest.mark.parametrize(
    ("options", "name"),
    [({"client_id": "me"}, "me"), ({}, socket.gethostname()), ({"plog_audit_producer": "p"}, "p")],
)
def test_producer_is_named_by_setting_or_client_id_or_host(
    options: dict[str, str], name: str
) -> None:
    site = ready(plog_audit_enable=True, **options)
    site.sent(b"a")
    site.flush()
    assert producer_of(site.records()[0].headers) == name


def test_two_producers_have_different_instances() -> None:
    site = audited()
    other = ProducerSite(seed=1, **AUDITED)
    for each in (site, other):
        each.know()
        each.sent(b"a")
        each.run(each.core.close())
    assert reports_of(site)[0].instance != reports_of(other)[0].instance


# -- failed records -------------------------------------------------------------------------------


def test_rejected_records_are_not_counted() -> None:
    site = audited(topic={"max_message_bytes": "200"})
    [handle] = site.sent(b"x" * 500)
    site.sent(b"a", timestamp=0)
    site.run(site.core.close())
    assert isinstance(handle.error(), MessageTooLarge)
    assert sum(records for _, records, _ in reported(site)) == len(site.records())
    assert findings_of(site) == []


def test_expired_records_in_flight_are_reported_as_in_doubt() -> None:
    site = audited(delivery_timeout_ms=2000, request_timeout_ms=1000, linger_ms=0)
    site.sent(b"a")
    site.flush()
    site.sim.advance(1000)
    # The broker writes the record, but each response to the producer is lost.
    site.sim.on_request = lambda request: (
        "lose" if isinstance(request, ProduceRequest) and not is_report(request) else None
    )
    [handle] = site.sent(b"b")
    site.flush()
    site.sim.on_request = None
    assert isinstance(handle.error(), DeliveryTimedOut)
    site.run(site.core.close())
    assert sum(doubtful for _, _, doubtful in reported(site)) == 1
    assert site.values() == [b"a", b"b"]
    assert findings_of(site) == []


def test_records_of_a_dead_broker_are_in_doubt_only_if_they_were_sent() -> None:
    site = audited(delivery_timeout_ms=2000, request_timeout_ms=1000, linger_ms=0)
    site.sent(b"a")
    site.flush()
    site.sim.refuses = True
    site.sim.drop_all()
    site.sim.advance(100)
    [handle] = site.sent(b"never sent")
    site.flush()
    assert isinstance(handle.error(), DeliveryTimedOut)
    site.sim.refuses = False
    site.run(site.core.close())
    assert sum(doubtful for _, _, doubtful in reported(site)) == 0
    assert findings_of(site) == []


@pytest.mark.parametrize("seed", range(12))
def test_reports_agree_with_the_log_despite_random_failures(seed: int) -> None:
    site = audited(seed=seed, batch_size=200, delivery_timeout_ms=60_000, request_timeout_ms=5000)
    chance = random.Random(seed)

    def fault(request: ApiMessage) -> str | None:
        if not isinstance(request, ProduceRequest) or chance.random() > 0.2:
            return None
        return chance.choice(["drop", "lose"])

    site.sim.on_request = fault
    for number in range(60):
        handle = site.core.send(TOPIC, b"%d" % number, timestamp=number * 7000)
        assert handle is not None
        site.sim.advance(chance.choice([0, 10, 1000]))
        if number == 30:
            site.sim.restart()
    site.flush()
    site.sim.on_request = None
    site.run(site.core.close())
    assert len(site.records()) == 60
    assert findings_of(site) == []


# -- reports that fail ----------------------------------------------------------------------------


def test_unacknowledged_report_is_repeated_with_its_number_and_contents() -> None:
    site = audited()
    lost: list[ApiMessage] = []

    def lose_first_report(request: ApiMessage) -> str | None:
        if is_report(request) and not lost:
            lost.append(request)
            return "lose"
        return None

    site.sim.on_request = lose_first_report
    site.sent(b"a")
    site.flush()
    site.sent(b"b")
    site.flush()
    site.run(site.core.close())
    first, second = site.records(topic=AUDIT_TOPIC)[:2]
    assert first.value == second.value
    assert ledger_of(site).repeated_reports == 1
    assert findings_of(site) == []


class DeniedCreation:
    """An interference: the broker does not create topics as long as `is_denied` is set."""

    is_denied = True

    async def __call__(self, request: ApiMessage, really: Callable[[], Awaitable[Any]]) -> Any:
        if not isinstance(request, CreateTopicsRequest) or not self.is_denied:
            return await really()
        request.validate_only = True
        response = await really()
        response.topics[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.topics[0].error_message = "denied"
        return response


def test_denied_topic_logs_one_warning_and_the_producer_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = audited()
    site.sim.interfere = denied = DeniedCreation()
    for value in (b"a", b"b", b"c"):
        [handle] = site.sent(value)
        site.flush()
        assert handle.metadata().offset >= 0
        site.sim.advance(2 * INTERVAL_MS)
    assert caplog.text.count("cannot send an audit report") == 1
    assert "cannot create topic _plog_audit: denied; the producer continues" in caplog.text
    denied.is_denied = False
    site.sim.advance(2 * INTERVAL_MS)
    # The first report was frozen before the failure; the later counts were merged.
    assert reported(site) == [(1, 1, 0), (2, 2, 0)]
    assert findings_of(site) == []


def test_failed_report_does_not_break_connections_of_the_producer() -> None:
    site = audited()
    site.sent(b"a")
    site.flush()
    before = [channel for channel in site.sim.channels if channel.is_open]
    site.sim.on_request = lambda request: "drop" if is_report(request) else None
    site.sent(b"b")
    site.flush()
    site.sim.advance(3 * INTERVAL_MS)
    assert any(map(is_report, site.sim.requests))
    assert all(channel.is_open for channel in before if channel in site.sim.channels[:2])


def test_bug_in_the_audit_is_logged_and_the_audit_continues(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site = audited()
    with monkeypatch.context() as patch:
        patch.setattr(audit_reporter.AuditTopic, "write", lambda *_: 1 / 0)
        site.sent(b"a")
        site.flush()
        site.sim.advance(1000)
    assert "the producer's audit failed" in caplog.text
    site.run(site.core.close())
    assert findings_of(site) == []


def test_many_windows_are_reported_in_several_reports() -> None:
    site = audited()
    for number in range(450):
        site.sent(b"a", timestamp=number * 60_000)
    site.run(site.core.close())
    assert [records for _, records, _ in reported(site)] == [200, 200, 50]
    assert [report.is_final for report in reports_of(site)] == [False, False, True]
    assert findings_of(site) == []


def test_counts_beyond_the_limit_are_discarded_as_a_missing_report(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_reporter, "_WINDOWS_MAX", 3)
    site = audited()
    site.sent(b"a")
    site.flush()
    site.sim.advance(1000)
    for number in range(5):
        site.sent(b"b", timestamp=number * 60_000)
    site.run(site.core.close())
    assert f"discarded audit counts in more than 3 time windows ({TOPIC}: 5 records)" in caplog.text
    [missing] = ledger_of(site).missing_reports()
    assert (missing.first, missing.last) == (2, 2)


# -- close ----------------------------------------------------------------------------------------


def test_close_without_broker_ends_in_time_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = audited()
    site.sent(b"a")
    site.flush()
    site.sim.advance(1000)
    site.sent(b"b", b"c")
    site.flush()
    site.sim.refuses = True
    site.sim.drop_all()
    begun_s = site.sim.now_s()
    site.run(site.core.close(3))
    assert site.sim.now_s() - begun_s <= 3.1
    assert f"before its audit reports were acknowledged ({TOPIC}: 2 records)" in caplog.text


def test_close_without_timeout_and_broker_ends_after_the_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = audited()
    site.sent(b"a")
    site.flush()
    site.sim.deaf = True
    begun_s = site.sim.now_s()
    site.run(site.core.close())
    assert site.sim.now_s() - begun_s <= audit_reporter.CLOSE_TIMEOUT_S + 0.1
    assert "audits will list these records as unreported" in caplog.text


def test_close_does_not_wait_for_a_permission(caplog: pytest.LogCaptureFixture) -> None:
    site = audited()
    site.sim.interfere = DeniedCreation()
    site.sent(b"a")
    site.flush()
    begun_s = site.sim.now_s()
    site.run(site.core.close())
    assert site.sim.now_s() - begun_s < 1
    assert "cannot create topic _plog_audit: denied; audits will list" in caplog.text


def test_records_in_flight_that_close_abandons_are_named_in_the_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = audited(linger_ms=0)
    site.sent(b"a")
    site.flush()
    site.sim.advance(1000)

    async def delay(request: ApiMessage, really: Callable[[], Awaitable[Any]]) -> Any:
        response = await really()
        await site.sim.sleep(2)
        return response

    site.sim.interfere = delay
    site.sent(b"b")
    site.run(site.core.close(1))
    assert f"before its audit reports were acknowledged ({TOPIC}: 1 records)" in caplog.text


def test_second_close_waits_for_the_report_of_the_first() -> None:
    site = audited()
    site.sent(b"a")
    first = site.sim.spawn(site.core.close(), "closing")
    site.run(site.core.close())
    assert first.done
    assert reports_of(site)[-1].is_final
    assert len([report for report in reports_of(site) if report.is_final]) == 1


def test_killed_producer_leaves_unreported_records() -> None:
    site = audited()
    site.sent(b"a")
    site.flush()
    site.sim.advance(1000)
    site.sent(b"b", b"c")
    site.flush()
    [finding] = findings_of(site)
    assert (finding.kind, finding.records) == (FindingKind.UNREPORTED, 2)
