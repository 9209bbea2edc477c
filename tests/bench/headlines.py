"""The figures that are often quoted about Kafka, each with plog's figure in the same terms.

A broker "takes 200,000 messages a second and gives out 400,000", "acknowledges in 2-5 ms" and so
on: vendors and talks quote such figures for clusters of large machines. plog's figures are those of
one process on one core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.results import Run
from tests.bench.rounds import Round, figure, spread, values_of
from tests.bench.rounds import Target as _Target

_CODECS = ("gzip", "snappy", "lz4", "zstd")
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Part:
    """One of plog's figures for a claim: the median over a load's rounds, formatted."""

    load: str
    of: Callable[[Round, str], float]
    text: str
    subject: str = "plog"

    def render(self, run: Run) -> str:
        """Return the text for the table; a dash if the load has not run."""
        target = _Target(what="", of=self.of)
        found = spread(values_of(target, run.counted(self.load), self.subject))
        return self.text.format(found.middle) if found else "–"


@dataclass(frozen=True, slots=True)
class Headline:
    """A claim about Kafka and plog's figures for it."""

    claim: str
    parts: tuple[Part, ...]


def _ratio_of_codec(round_: Round, subject: str) -> float:
    """Return the compression ratio of a request with 100 KiB of values."""
    return 100 * 1024 / float(round_[subject]["request_bytes"])


HEADLINES = (
    Headline(
        "200,000 messages/s in",
        (
            Part("raw-1", figure("msgs_s"), "{:,.0f} one by one"),
            Part("raw-50", figure("msgs_s"), "{:,.0f} in batches of 50"),
            Part("raw-50", figure("msgs_s"), "{:,.0f} in durable batches of 50", "plog-default"),
            Part("confluent-200", figure("msgs_s"), "{:,.0f} through confluent-kafka"),
        ),
    ),
    Headline(
        "400,000 messages/s out",
        (
            Part("paper", figure("out1.msgs_s"), "{:,.0f} from a log written one by one"),
            Part("rawfetch", figure("msgs_s"), "{:,.0f} from a log with batches of 500"),
            Part("consume", figure("msgs_s"), "{:,.0f} through confluent-kafka"),
        ),
    ),
    Headline(
        "2–5 ms to acknowledge, acks=1",
        (
            Part("latency", figure("produce_ack_ms", "p50"), "p50 {:.2f} ms"),
            Part("latency", figure("produce_ack_ms", "p99"), "p99 {:.2f} ms"),
        ),
    ),
    Headline(
        "5–15 ms to acknowledge, acks=all (one replica, durable on its disk)",
        (
            Part("latency", figure("produce_ack_ms", "p50"), "p50 {:.2f} ms", "plog-default"),
            Part("latency", figure("produce_ack_ms", "p99"), "p99 {:.2f} ms", "plog-default"),
        ),
    ),
    Headline(
        "1–2 ms to consume (from send to receipt)",
        (
            Part("latency", figure("end_to_end_ms", "p50"), "p50 {:.2f} ms"),
            Part("latency", figure("end_to_end_ms", "p99"), "p99 {:.2f} ms"),
            Part(
                "latency", figure("end_to_end_ms", "p50"), "durable p50 {:.2f} ms", "plog-default"
            ),
        ),
    ),
    Headline(
        "5–10 × compression (of an access log)",
        tuple(Part(f"codec-{codec}", _ratio_of_codec, f"{codec} {{:.1f}} ×") for codec in _CODECS),
    ),
    Headline(
        "1 TB a day",
        (
            Part("raw-50", figure("mb_s", scale=_DAY_S / 1e6), "{:.1f} TB at 200 B × 50"),
            Part("raw-50", figure("mb_s", scale=_DAY_S / 1e6), "{:.1f} TB durable", "plog-default"),
            Part("raw-1k", figure("mb_s", scale=_DAY_S / 1e6), "{:.1f} TB at 1 KiB × 100"),
        ),
    ),
)
