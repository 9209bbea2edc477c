"""Which quota applies, how rates are measured, and throttle times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plogd.metrics import Registry
from plogd.quota import (
    DEFAULT,
    QuotaEntity,
    QuotaMetrics,
    Quotas,
    RateMeter,
    RateQuota,
    entity_of,
    entity_of_key,
    quota_key,
)

NAMES = st.none() | st.sampled_from([DEFAULT, "a", "b"])


def make(**settings: float) -> RateQuota:
    values = {"samples": 11, "sample_ms": 1000.0} | settings
    return RateQuota(
        "Produce", QuotaMetrics(Registry()), int(values["samples"]), values["sample_ms"]
    )


# -- entities -------------------------------------------------------------------------------------


@given(NAMES, NAMES, NAMES)
def test_entity_is_restored_from_its_key(
    user: str | None, client_id: str | None, ip: str | None
) -> None:
    entity = QuotaEntity(user=user, client_id=client_id, ip=ip)
    assert entity_of_key(quota_key(entity)) == entity


def test_unknown_entity_type_is_refused() -> None:
    with pytest.raises(ValueError, match="'group'"):
        entity_of({"user": "a", "group": "g"})


# -- which quota applies --------------------------------------------------------------------------

# Kafka's order of precedence, and the entity that shares the quota.
PRECEDENCE = [
    (("u", "c"), ("u", "c")),
    (("u", DEFAULT), ("u", "c")),
    (("u", None), ("u", None)),
    ((DEFAULT, "c"), ("u", "c")),
    ((DEFAULT, DEFAULT), ("u", "c")),
    ((DEFAULT, None), ("u", None)),
    ((None, "c"), (None, "c")),
    ((None, DEFAULT), (None, "c")),
]


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_most_specific_quota_applies(first: int) -> None:
    quota = make()
    for number, (who, _) in enumerate(PRECEDENCE[first:], first):
        quota.set_limit(who, float(number + 1))
    assert quota.find("u", "c") == (first + 1, PRECEDENCE[first][1])


def test_quota_of_another_entity_does_not_apply() -> None:
    quota = make()
    for who in (("v", "c"), ("v", None), ("u", "d"), (None, "d"), ("v", DEFAULT), (DEFAULT, "d")):
        quota.set_limit(who, 1.0)
    assert quota.find("u", "c") is None
    assert quota.take("u", "c", 1e9, 0.0) == 0


def test_client_without_id_has_only_quotas_of_its_user() -> None:
    quota = make()
    for who, limit in ((("u", DEFAULT), 1.0), ((None, DEFAULT), 2.0), ((DEFAULT, DEFAULT), 3.0)):
        quota.set_limit(who, limit)
    assert quota.find("u", "") is None
    quota.set_limit((DEFAULT, None), 4.0)
    assert quota.find("u", "") == (4.0, ("u", None))


def test_is_set_only_while_an_entity_has_a_quota() -> None:
    quota = make()
    assert not quota.is_set
    quota.set_limit((None, "c"), 1.0)
    assert quota.is_set
    quota.set_limit((None, "c"), None)
    quota.set_limit((None, "other"), None)
    assert not quota.is_set


# -- rates ----------------------------------------------------------------------------------------


def test_first_burst_is_spread_over_the_whole_window() -> None:
    meter = RateMeter(11, 1000)
    meter.record(5000, 0)
    assert meter.measure(0) == (5000, 10_000)
    assert meter.measure(500) == (5000, 10_500)
    assert meter.measure(9_999) == (5000, 10_999)


def test_amounts_older_than_the_window_do_not_count() -> None:
    meter = RateMeter(11, 1000)
    meter.record(5000, 0)
    assert meter.measure(10_999)[0] == 5000
    assert meter.measure(11_000) == (0, 10_000)
    assert meter.is_idle(11_000)


@given(st.lists(st.tuples(st.floats(0, 1500), st.integers(1, 1000)), max_size=60))
def test_meter_sums_amounts_in_its_window(events: list[tuple[float, int]]) -> None:
    meter = RateMeter(5, 1000)
    now, came = 0.0, []
    for delay, amount in events:
        now += delay
        meter.record(amount, now)
        came.append((now, amount))
        total, window_ms = meter.measure(now)
        # A sample is dropped as a whole when its newest event is outside the window.
        assert total >= sum(amount for at, amount in came if now - at < 5000)
        assert total <= sum(amount for at, amount in came if now - at < 6000 + 1)
        assert 4000 <= window_ms < 7000


def test_reverted_amount_leaves_nothing() -> None:
    meter = RateMeter(11, 1000)
    meter.record(10, 0)
    meter.record(1000, 1500)
    meter.record(-1000, 1500)
    assert meter.measure(1500)[0] == 10


# -- throttling -----------------------------------------------------------------------------------


def test_client_within_its_quota_is_not_throttled() -> None:
    quota = make()
    quota.set_limit((None, "c"), 100.0)
    assert [quota.take("u", "c", 90, at * 1000.0) for at in range(30)] == [0] * 30


def test_throttle_time_lasts_until_the_rate_equals_the_quota() -> None:
    quota = make()
    quota.set_limit((None, "c"), 100.0)
    assert quota.take("u", "c", 1000, 0) == 0
    # 2000 bytes in a window of 10 s are 200 per second; after another 10 s the rate is 100.
    assert quota.take("u", "c", 1000, 0) == 10_000


def test_clients_share_quota_of_their_user_but_not_defaults() -> None:
    quota = make()
    quota.set_limit(("u", None), 100.0)
    assert quota.take("u", "one", 1000, 0) == 0
    assert quota.take("u", "two", 1000, 0) > 0
    quota.set_limit((DEFAULT, None), 100.0)
    assert quota.take("v", "one", 1000, 0) == 0
    assert quota.take("w", "one", 1000, 0) == 0
    assert quota.take("w", "one", 1, 0) > 0


def test_changed_quota_applies_immediately_to_recorded_amounts() -> None:
    quota = make()
    quota.set_limit((None, "c"), 1000.0)
    assert quota.take("u", "c", 5000, 0) == 0
    quota.set_limit((None, "c"), 100.0)
    assert quota.take("u", "c", 0, 0) == 40_000


def test_throttle_time_is_limited_to_int32() -> None:
    quota = make()
    quota.set_limit((None, "c"), 1.0)
    assert quota.take("u", "c", 1e12, 0) == 0x7FFFFFFF


def test_quota_near_zero_gives_the_maximum_throttle_time() -> None:
    quota = make()
    quota.set_limit((None, "c"), 5e-324)
    assert quota.take("u", "c", 1000, 0) == 0x7FFFFFFF


def test_refused_response_is_not_counted() -> None:
    quota = make()
    quota.set_limit((None, "c"), 100.0)
    assert quota.request("u", "c", 600, 0) == (True, 0)
    assert quota.request("u", "c", 600, 0) == (False, 2000)
    assert quota.request("u", "c", 400, 0) == (True, 0)


def test_amount_exceeding_a_window_is_sent_when_the_window_is_empty() -> None:
    quota = make()
    quota.set_limit((None, "c"), 100.0)
    assert quota.window_limit("u", "c") == 1000
    assert quota.request("u", "c", 5000, 0) == (True, 40_000)
    assert quota.request("u", "c", 5000, 10_000)[0] is False
    assert quota.request("u", "c", 5000, 40_000) == (True, 40_000)


def test_window_of_one_sample_allows_traffic() -> None:
    quota = make(samples=1)
    quota.set_limit((None, "c"), 100.0)
    assert quota.window_limit("u", "c") == 100
    assert quota.window_limit("u", "d") is None
    assert quota.request("u", "d", 1e9, 0) == (True, 0)


def test_meters_of_idle_clients_are_removed() -> None:
    quota = make()
    quota.set_limit((None, DEFAULT), 100.0)
    for number in range(5000):
        quota.take("u", f"client-{number}", 1, number * 100.0)
    assert len(quota._meters) <= 1100
    assert quota.take("u", "client-4999", 1000, 499_900.0) > 0, "those that have not, are not"


def test_throttling_is_counted_by_request_type() -> None:
    metrics = Registry()
    quotas = Quotas(metrics, samples=11, sample_ms=1000)
    quotas.update(QuotaEntity(user="u"), {"producer_byte_rate": 100.0})
    assert quotas.produce.take("u", "c", 2000, 0) == 10_000
    text = metrics.expose().decode()
    assert 'plog_quota_throttled_total{request="Produce"} 1' in text
    assert 'plog_quota_throttle_time_ms_total{request="Produce"} 10000' in text
    assert 'plog_quota_throttled_total{request="Fetch"} 0' in text


def test_quotas_are_set_and_removed_by_entity() -> None:
    quotas = Quotas(Registry(), samples=11, sample_ms=1000)
    everything = {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0, "request_percentage": 3.0}
    quotas.update(QuotaEntity(user="u", client_id=DEFAULT), everything)
    assert quotas.produce.find("u", "c") == (1.0, ("u", "c"))
    assert quotas.fetch.find("u", "c") == (2.0, ("u", "c"))
    quotas.update(QuotaEntity(user="u", client_id=DEFAULT), {"request_percentage": 3.0})
    assert not quotas.produce.is_set
    assert not quotas.fetch.is_set
    quotas.update(QuotaEntity(user="u", client_id=DEFAULT), None)
    quotas.update(QuotaEntity(ip="192.0.2.1"), {"connection_creation_rate": 1.0})
    assert not quotas.produce.is_set
