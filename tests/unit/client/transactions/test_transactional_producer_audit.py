"""The audit of a transactional producer: it counts committed records only."""

from __future__ import annotations

import pytest

from plog.audit import AUDIT_TOPIC, AuditReport, parse_report
from plog.errors import ErrorCode, ProducerFenced, RequestTimedOut
from plog.records.reader import iter_records
from plog.wire.messages.end_txn import EndTxnRequest
from tests.unit.client.transactions.site import Site


def audited(**options: object) -> Site:
    return Site(plog_audit_enable=True, plog_audit_producer="shop-1", **options)


def reported(site: Site) -> tuple[int, int]:
    """Return the number of acknowledged and of doubtful records in all reports."""
    answer = site.world.network.broker.fetch(AUDIT_TOPIC, 0)
    if answer.error_code:
        return 0, 0
    reports: list[AuditReport] = [
        parse_report(record.value) for record in iter_records(answer.records or b"", from_offset=0)
    ]
    counts = [totals.records for each in reports for _, totals in each.counts.items()]
    in_doubt = [totals.records for each in reports for _, totals in each.in_doubt.items()]
    return sum(counts), sum(in_doubt)


@pytest.mark.parametrize("level", [1, 2])
def test_committed_records_are_reported_and_aborted_records_are_not(level: int) -> None:
    site = audited(level=level)
    site.send(b"a", b"b")
    site.commit()
    site.begin()
    site.send(b"c")
    site.flush()
    site.abort()
    site.begin()
    site.send(b"d")
    site.commit()
    site.run(site.core.close())
    assert site.committed() == [b"a", b"b", b"d"]
    assert reported(site) == (3, 0)


def test_records_of_an_open_transaction_are_not_reported_before_its_end() -> None:
    site = audited()
    site.send(b"a")
    site.flush()
    site.world.network.advance(30_000)
    assert reported(site) == (0, 0)
    site.commit()
    site.world.network.advance(1000)
    assert reported(site) == (1, 0)


def test_transaction_that_close_aborts_is_not_reported() -> None:
    site = audited()
    site.send(b"a")
    site.commit()
    site.begin()
    site.send(b"b")
    site.flush()
    site.run(site.core.close())
    assert reported(site) == (1, 0)


def test_records_are_in_doubt_when_the_producer_fails_during_the_commit() -> None:
    site = audited()
    site.send(b"a")
    site.world.faults.append((EndTxnRequest, ErrorCode.PRODUCER_FENCED))
    with pytest.raises(ProducerFenced):
        site.commit()
    site.run(site.core.close())
    assert reported(site) == (0, 1)


def test_close_names_records_of_a_commit_without_outcome(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = audited()
    site.send(b"a")
    site.world.faults.append((EndTxnRequest, "hang"))
    with pytest.raises(RequestTimedOut):
        site.commit(1)
    site.run(site.core.close(2))
    assert site.committed() == [b"a"]
    assert "audit reports were acknowledged (orders: 1 records)" in caplog.text


def test_cancelled_close_stops_the_audit(caplog: pytest.LogCaptureFixture) -> None:
    site = audited()
    site.send(b"a")
    site.flush()
    site.world.faults += [(EndTxnRequest, "hang")] * 50

    async def give_up() -> None:
        closing = site.world.network.spawn(site.core.close(), "closing")
        await site.world.network.sleep(0.5)
        closing.cancel()
        await site.world.network.sleep(0)

    site.run(give_up())
    assert "audit reports were acknowledged (orders: 1 records)" in caplog.text
