"""How fast clients may produce and fetch: whose quota counts, rates, and how long to wait.

`Quotas` holds a `RateQuota` for each quota that is enforced. Handlers ask it (apis/throttling.py),
the connection then takes no request for the time it says (net/request_queue.py). Which quotas
there are is the metadata store's knowledge; changing them is controller/client_quotas.py's work.

A rate is bytes over a sliding window of samples. Whoever exceeds it waits as long as it takes until
the rate, if nothing more came, is the quota again: with a rate R over a window of W and a quota Q,
that is (R - Q) / Q * W. All clients a quota's entity stands for share it, except that a default
gives each its own.

Pure; times are the monotonic clock's, in milliseconds. Source: KIP-13, KIP-55, KIP-219, KIP-257;
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
"""The name that stands for everybody without a quota of their own."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"

_KEY: Final = "client_quota"
_INT32_MAX = 0x7FFFFFFF
_SWEEP_AT = 1000
"""From so many meters on, those that measure nothing are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity:
    """Whom a quota is for. A part is None where it does not matter, `DEFAULT` for the default."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> Iterator[tuple[str, str]]:
        """(type, name) of the parts that matter."""
        for entity_type, name in ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip)):
            if name is not None:
                yield entity_type, name

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name or '<default>'}" for kind, name in self.parts())


def entity_of(parts: Mapping[str, str]) -> QuotaEntity:
    """The entity with these names by type. Raises ValueError for a type that is none.

    >>> str(entity_of({"client-id": "app", "user": ""}))
    'user <default>, client-id app'
    """
    unknown = sorted(set(parts) - {USER, CLIENT_ID, IP})
    if unknown:
        raise ValueError(f"there are no quotas for entities of type {unknown[0]!r}")
    return QuotaEntity(user=parts.get(USER), client_id=parts.get(CLIENT_ID), ip=parts.get(IP))


def quota_key(entity: QuotaEntity) -> Key:
    """Where the metadata store keeps the quotas of `entity`."""
    return (_KEY, *(word for part in entity.parts() for word in part))


def entity_of_key(key: Key) -> QuotaEntity:
    """The entity whose quotas are kept at `key`."""
    words = [str(word) for word in key[1:]]
    return entity_of(dict(zip(words[::2], words[1::2], strict=True)))


class _Sample:
    """What came in one part of the window."""

    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0


class RateMeter:
    """A sum over the last `samples` parts of `sample_ms` each, and the rate that makes.

    A window counts as at least `samples` - 1 parts long, so that a first burst is not taken for a
    rate. It holds one sample more than it measures, as the oldest may lie in it with one end only.
    """

    __slots__ = ("_current", "_sample_ms", "_samples", "_slots")

    def __init__(self, samples: int, sample_ms: float) -> None:
        self._samples = samples
        self._sample_ms = sample_ms
        self._slots: list[_Sample] = []
        self._current = 0

    def record(self, amount: float, now_ms: float) -> None:
        """Something came; a negative amount takes back what was recorded just now."""
        sample = self._slots[self._current] if self._slots else self._next(now_ms)
        if now_ms - sample.start_ms >= self._sample_ms:
            sample = self._next(now_ms)
        sample.total += amount
        sample.last_ms = now_ms

    def _next(self, now_ms: float) -> _Sample:
        if self._slots:
            self._current = (self._current + 1) % (self._samples + 1)
        if self._current == len(self._slots):
            self._slots.append(_Sample(now_ms))
        else:
            self._slots[self._current].reset(now_ms)
        return self._slots[self._current]

    def measure(self, now_ms: float) -> tuple[float, float]:
        """What came in the window, and how many milliseconds the window counts as."""
        total, oldest_ms = 0.0, now_ms
        for sample in self._slots:
            if now_ms - sample.last_ms >= self._samples * self._sample_ms:
                sample.reset(now_ms)
            total += sample.total
            oldest_ms = min(oldest_ms, sample.start_ms)
        window_ms = now_ms - oldest_ms
        missing = self._samples - 1 - int(window_ms / self._sample_ms)
        return total, max(window_ms + max(0, missing) * self._sample_ms, 1.0)

    def is_idle(self, now_ms: float) -> bool:
        """Whether nothing of what came counts any more."""
        limit_ms = self._samples * self._sample_ms
        return not any(x.total > 0 and now_ms - x.last_ms < limit_ms for x in self._slots)


_Who: TypeAlias = "tuple[str | None, str | None]"
"""User and client id, as in `QuotaEntity`."""


class Granted(NamedTuple):
    """Whether an answer may be sent, and how long no request is to be taken after that."""

    may_send: bool
    throttle_ms: int


class RateQuota:
    """One kind of quota, for all users and clients.

    Attributes:
        is_set: whether anybody has a quota of this kind; if not, there is nothing to ask.
    """

    def __init__(self, name: str, metrics: QuotaMetrics, samples: int, sample_ms: float) -> None:
        self.is_set = False
        self._samples = samples
        self._sample_ms = sample_ms
        self._limits: dict[_Who, float] = {}
        self._meters: dict[_Who, RateMeter] = {}
        self._sweep_at = _SWEEP_AT
        self._throttled = metrics.throttled.labels(name)
        self._throttle_time = metrics.throttle_time.labels(name)

    def set_limit(self, who: _Who, limit: float | None) -> None:
        """Set somebody's quota, per second, or take it away."""
        if limit is None:
            self._limits.pop(who, None)
        else:
            self._limits[who] = limit
        self.is_set = bool(self._limits)
        if not self.is_set:
            self._meters.clear()

    def find(self, user: str, client_id: str) -> tuple[float, _Who] | None:
        """The quota that counts for a client, and with whom it is shared; None for no quota.

        The most specific one counts, and the user before the client id. A client without an id has
        no quota of any client id, not even the default one.
        """
        limits = self._limits
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
        """Count what a client has sent; for how long it is to be throttled, mostly 0."""
        found = self.find(user, client_id)
        if found is None:
            return 0
        limit, shared_by = found
        meter = self._meter(shared_by, now_ms)
        meter.record(amount, now_ms)
        return self._counted(_throttle_ms(limit, *meter.measure(now_ms)))

    def request(self, user: str, client_id: str, amount: float, now_ms: float) -> Granted:
        """Whether a client may be sent so much now. If not, it is not counted.

        What is too much for a whole window is sent when the window is empty, and the client waits
        the longer: otherwise it would never come.
        """
        found = self.find(user, client_id)
        if found is None:
            return Granted(True, 0)
        limit, shared_by = found
        meter = self._meter(shared_by, now_ms)
        meter.record(amount, now_ms)
        total, window_ms = meter.measure(now_ms)
        throttle_ms = self._counted(_throttle_ms(limit, total, window_ms))
        may_send = throttle_ms == 0 or total <= amount
        if not may_send:
            meter.record(-amount, now_ms)
        return Granted(may_send, throttle_ms)

    def window_limit(self, user: str, client_id: str) -> float | None:
        """The most a client can be sent in one go without being throttled; None for no bound."""
        found = self.find(user, client_id)
        if found is None:
            return None
        return found[0] * max(1, self._samples - 1) * self._sample_ms / 1000

    def _meter(self, shared_by: _Who, now_ms: float) -> RateMeter:
        meter = self._meters.get(shared_by)
        if meter is None:
            if len(self._meters) >= self._sweep_at:
                self._sweep(now_ms)
            meter = self._meters[shared_by] = RateMeter(self._samples, self._sample_ms)
        return meter

    def _sweep(self, now_ms: float) -> None:
        """Forget who has sent nothing lately: clients may call themselves what they like."""
        self._meters = {
            who: meter for who, meter in self._meters.items() if not meter.is_idle(now_ms)
        }
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._meters))

    def _counted(self, throttle_ms: int) -> int:
        if throttle_ms:
            self._throttled.value += 1
            self._throttle_time.value += throttle_ms
        return throttle_ms


def _throttle_ms(limit: float, total: float, window_ms: float) -> int:
    """How long to wait until `total` is no more than `limit` allows.

    >>> _throttle_ms(100.0, 2000.0, 10_000.0), _throttle_ms(100.0, 1000.0, 10_000.0)
    (10000, 0)
    >>> _throttle_ms(5e-324, 2000.0, 10_000.0)
    2147483647
    """
    rate = total * 1000 / window_ms
    # The bound first: a quota near 0 makes a wait that is no integer.
    return 0 if rate <= limit else round(min(_INT32_MAX, (rate - limit) / limit * window_ms))


class QuotaMetrics:
    """What is counted of throttling, by kind of request; who was throttled is not in it."""

    def __init__(self, metrics: Registry) -> None:
        labels = ("request",)
        self.throttled = metrics.counters(
            "plog_quota_throttled_total", "Requests answered with a throttle time.", labels
        )
        self.throttle_time = metrics.counters(
            "plog_quota_throttle_time_ms_total", "Milliseconds clients were throttled for.", labels
        )


class Quotas:
    """The quotas that are enforced: bytes produced and bytes fetched, per second."""

    def __init__(self, metrics: Registry, *, samples: int, sample_ms: float) -> None:
        counters = QuotaMetrics(metrics)
        self.produce = RateQuota("Produce", counters, samples, sample_ms)
        self.fetch = RateQuota("Fetch", counters, samples, sample_ms)

    def update(self, entity: QuotaEntity, quotas: Mapping[str, float] | None) -> None:
        """The quotas of `entity` are these from now on; None for none."""
        if entity.ip is not None:
            return  # There is none of them that is enforced.
        who = (entity.user, entity.client_id)
        quotas = quotas or {}
        self.produce.set_limit(who, quotas.get(PRODUCER_BYTE_RATE))
        self.fetch.set_limit(who, quotas.get(CONSUMER_BYTE_RATE))
