"""Produce and fetch quotas: entities, measured rates, and throttle times.

`Quotas` holds a `RateQuota` for each quota type that is enforced. Request handlers query it
(apis/throttling.py), and the connection does not start any new requests until the throttle time has
elapsed (net/request_queue.py). The metadata store holds the quotas; controller/client_quotas.py
changes them.

A rate is the number of bytes per second over a sliding window of samples. A client that exceeds its
quota is throttled until its rate, without further traffic, has dropped to the quota. All clients of
a quota's entity share the quota, except that a default quota applies to each client separately.

This module is pure; times are monotonic, in milliseconds. Source: KIP-13, KIP-55, KIP-219, KIP-257;
Kafka 4.0 ClientQuotaManager, QuotaUtils, Rate, SampledStat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from plogd.metadata.store import Key
from plogd.metrics import Registry

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
DEFAULT: Final = ""
"""The entity name of the default quota, for entities without their own quota."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"

_KEY: Final = "client_quota"
# The maximum of throttle_time_ms, which is an int32 in every response.
_INT32_MAX = 0x7FFFFFFF
_SWEEP_AT = 1000
"""Number of meters at which idle meters are removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity:
    """The entity of a quota. A part is None to match any value, or `DEFAULT` for the default."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield the type and the name of each part that is not None."""
        # In this order, which is part of the key under which the store keeps a quota.
        for entity_type, name in ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip)):
            if name is not None:
                yield entity_type, name

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name or '<default>'}" for kind, name in self.parts())


def entity_of(parts: Mapping[str, str]) -> QuotaEntity:
    """Return the entity with the names in `parts`, by type. Raises ValueError for an unknown type.

    >>> str(entity_of({"client-id": "app", "user": ""}))
    'user <default>, client-id app'
    """
    unknown = sorted(set(parts) - {USER, CLIENT_ID, IP})
    if unknown:
        raise ValueError(f"unknown entity type {unknown[0]!r}; use user, client-id or ip")
    return QuotaEntity(user=parts.get(USER), client_id=parts.get(CLIENT_ID), ip=parts.get(IP))


def quota_key(entity: QuotaEntity) -> Key:
    """Return the key under which the metadata store keeps the quotas of `entity`."""
    return (_KEY, *(word for part in entity.parts() for word in part))


def entity_of_key(key: Key) -> QuotaEntity:
    """Return the entity whose quotas are stored at `key`."""
    words = [str(word) for word in key[1:]]
    return entity_of(dict(zip(words[::2], words[1::2], strict=True)))


class _Sample:
    """The amount recorded in one part of the window."""

    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0


class RateMeter:
    """Measures a rate over a sliding window of `samples` parts of `sample_ms` each.

    A window shorter than `shortest_window` parts, by default `samples` - 1, is extended to that
    length; otherwise, a first burst would look like a high rate.
    """

    __slots__ = ("_current", "_sample_ms", "_samples", "_shortest", "_slots")

    def __init__(
        self, samples: int, sample_ms: float, *, shortest_window: int | None = None
    ) -> None:
        self._samples = samples
        self._shortest = samples - 1 if shortest_window is None else shortest_window
        self._sample_ms = sample_ms
        self._slots: list[_Sample] = []
        self._current = 0

    def record(self, amount: float, now_ms: float) -> None:
        """Record `amount`; a negative amount reverts an amount that was just recorded."""
        sample = self._slots[self._current] if self._slots else self._next(now_ms)
        if now_ms - sample.start_ms >= self._sample_ms:
            sample = self._next(now_ms)
        sample.total += amount
        sample.last_ms = now_ms

    def _next(self, now_ms: float) -> _Sample:
        if self._slots:
            # One more sample than the window has parts, because the oldest sample may be only
            # partly inside the window.
            self._current = (self._current + 1) % (self._samples + 1)
        if self._current == len(self._slots):
            self._slots.append(_Sample(now_ms))
        else:
            self._slots[self._current].reset(now_ms)
        return self._slots[self._current]

    def measure(self, now_ms: float) -> tuple[float, float]:
        """Return the total in the window, and the length of the window in milliseconds."""
        total, oldest_ms = 0.0, now_ms
        for sample in self._slots:
            # As in Kafka's SampledStat.purgeObsoleteSamples.
            if now_ms - sample.last_ms >= self._samples * self._sample_ms:
                sample.reset(now_ms)
            total += sample.total
            oldest_ms = min(oldest_ms, sample.start_ms)
        window_ms = now_ms - oldest_ms
        # Kafka's Rate.windowSize extends a short window in the same way.
        missing = self._shortest - int(window_ms / self._sample_ms)
        return total, max(window_ms + max(0, missing) * self._sample_ms, 1.0)

    def is_idle(self, now_ms: float) -> bool:
        """Return whether no recorded amount is inside the window."""
        limit_ms = self._samples * self._sample_ms
        return not any(x.total > 0 and now_ms - x.last_ms < limit_ms for x in self._slots)


_Entity: TypeAlias = "tuple[str | None, str | None]"
"""User and client id, as in `QuotaEntity`."""


class Granted(NamedTuple):
    """Whether a response may be sent, and how long the connection is throttled after it."""

    may_send: bool
    throttle_ms: int


class RateQuota:
    """One quota type, for all users and clients.

    Attributes:
        is_set: whether any entity has a quota of this type; if not, callers skip the check.
    """

    def __init__(self, name: str, metrics: QuotaMetrics, samples: int, sample_ms: float) -> None:
        self.is_set = False
        self._samples = samples
        self._sample_ms = sample_ms
        self._limits: dict[_Entity, float] = {}
        self._meters: dict[_Entity, RateMeter] = {}
        self._sweep_at = _SWEEP_AT
        self._throttled = metrics.throttled.labels(name)
        self._throttle_time = metrics.throttle_time.labels(name)

    def set_limit(self, entity: _Entity, limit: float | None) -> None:
        """Set the quota for `entity`, per second; None removes it."""
        if limit is None:
            # Without its own quota, the entity has the next less specific one.
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = limit
        self.is_set = bool(self._limits)
        # Callers do not measure anything while no quota is set, so the rates would be outdated.
        if not self.is_set:
            self._meters.clear()

    def find(self, user: str, client_id: str) -> tuple[float, _Entity] | None:
        """Return the quota that applies to a client and the entity that shares it, or None.

        The most specific quota applies; a user takes precedence over a client id. Quotas of client
        ids, even the default quota, do not apply to a client without an id.
        """
        limits = self._limits
        # The order of precedence of Kafka's DefaultQuotaCallback.
        for user_key in (user, DEFAULT):
            if client_id:
                for client_key in (client_id, DEFAULT):
                    limit = limits.get((user_key, client_key))
                    if limit is not None:
                        return limit, (user, client_id)
            limit = limits.get((user_key, None))
            if limit is not None:
                return limit, (user, None)
        if client_id:
            for client_key in (client_id, DEFAULT):
                limit = limits.get((None, client_key))
                if limit is not None:
                    return limit, (None, client_id)
        return None

    def take(self, user: str, client_id: str, amount: float, now_ms: float) -> int:
        """Count an amount that a client has sent; return its throttle time, which is usually 0."""
        found = self.find(user, client_id)
        if found is None:
            return 0
        limit, shared_by = found
        meter = self._meter(shared_by, now_ms)
        meter.record(amount, now_ms)
        return self._counted(_throttle_ms(limit, *meter.measure(now_ms)))

    def request(self, user: str, client_id: str, amount: float, now_ms: float) -> Granted:
        """Decide whether `amount` may be sent to a client now; count it only if it may be sent."""
        found = self.find(user, client_id)
        if found is None:
            return Granted(True, 0)
        limit, shared_by = found
        meter = self._meter(shared_by, now_ms)
        meter.record(amount, now_ms)
        total, window_ms = meter.measure(now_ms)
        throttle_ms = self._counted(_throttle_ms(limit, total, window_ms))
        # If the total is not greater, the window contains nothing else. Then even an amount that
        # exceeds the quota of a whole window is sent, because it could otherwise never be sent.
        may_send = throttle_ms == 0 or total <= amount
        if not may_send:
            meter.record(-amount, now_ms)
        return Granted(may_send, throttle_ms)

    def window_limit(self, user: str, client_id: str) -> float | None:
        """Return the maximum size of a response that is not throttled; None if unlimited."""
        found = self.find(user, client_id)
        if found is None:
            return None
        # `measure` never uses a shorter window than this.
        return found[0] * max(1, self._samples - 1) * self._sample_ms / 1000

    def _meter(self, shared_by: _Entity, now_ms: float) -> RateMeter:
        meter = self._meters.get(shared_by)
        if meter is None:
            if len(self._meters) >= self._sweep_at:
                self._sweep(now_ms)
            meter = self._meters[shared_by] = RateMeter(self._samples, self._sample_ms)
        return meter

    def _sweep(self, now_ms: float) -> None:
        """Remove idle meters, whose number may be large because clients choose their ids freely."""
        self._meters = {
            entity: meter for entity, meter in self._meters.items() if not meter.is_idle(now_ms)
        }
        # At twice the remaining number, so that the cost of a sweep is spread over an equal number
        # of new meters.
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._meters))

    def _counted(self, throttle_ms: int) -> int:
        if throttle_ms:
            self._throttled.value += 1
            self._throttle_time.value += throttle_ms
        return throttle_ms


def _throttle_ms(limit: float, total: float, window_ms: float) -> int:
    """Return the time until the rate of `total` has dropped to `limit`.

    >>> _throttle_ms(100.0, 2000.0, 10_000.0), _throttle_ms(100.0, 1000.0, 10_000.0)
    (10000, 0)
    >>> _throttle_ms(5e-324, 2000.0, 10_000.0)
    2147483647
    """
    rate = total * 1000 / window_ms
    # With a rate R over a window W and a quota Q, this takes (R - Q) / Q * W (Kafka's QuotaUtils).
    # The time is bounded before rounding, because a quota near 0 makes it infinite.
    return 0 if rate <= limit else round(min(_INT32_MAX, (rate - limit) / limit * window_ms))


class QuotaMetrics:
    """Counters for throttling by request type, not by client."""

    def __init__(self, metrics: Registry) -> None:
        labels = ("request",)
        self.throttled = metrics.counters(
            "plog_quota_throttled_total", "Requests answered with a throttle time.", labels
        )
        self.throttle_time = metrics.counters(
            "plog_quota_throttle_time_ms_total",
            "Time for which clients were throttled, in milliseconds.",
            labels,
        )


class Quotas:
    """The quotas that are enforced: bytes produced and bytes fetched, per second."""

    def __init__(self, metrics: Registry, *, samples: int, sample_ms: float) -> None:
        counters = QuotaMetrics(metrics)
        self.produce = RateQuota("Produce", counters, samples, sample_ms)
        self.fetch = RateQuota("Fetch", counters, samples, sample_ms)

    def update(self, entity: QuotaEntity, quotas: Mapping[str, float] | None) -> None:
        """Replace the quotas for `entity` with `quotas`; None removes them."""
        if entity.ip is not None:
            # Quotas of IP addresses are stored but not enforced.
            return
        key = (entity.user, entity.client_id)
        quotas = quotas or {}
        self.produce.set_limit(key, quotas.get(PRODUCER_BYTE_RATE))
        self.fetch.set_limit(key, quotas.get(CONSUMER_BYTE_RATE))
