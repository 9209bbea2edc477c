"""plog/cli/perf/e2e_latency.py: both ways to say what to measure, and what is sent."""

from __future__ import annotations

import argparse
import random

import pytest

from plog.cli.options import UsageError
from plog.cli.perf.e2e_latency import configure, make_sample, settle


def _settled(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    configure(parser)
    arguments = parser.parse_args(words)
    settle(arguments)
    return arguments


NAMED = (
    "--bootstrap-server", "a:1", "--topic", "t", "--num-records", "7", "--producer-acks", "all",
    "--record-size", "3",
)  # fmt: skip


@pytest.mark.parametrize("words", [NAMED, ("a:1", "t", "7", "all", "3")])
def test_the_older_order_means_the_same(words: tuple[str, ...]) -> None:
    arguments = _settled(*words)
    assert (arguments.bootstrap_servers, arguments.topic) == ("a:1", "t")
    assert (arguments.num_records, arguments.producer_acks) == (7, "all")
    assert (arguments.record_size, arguments.command_config) == (3, None)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "say --bootstrap-server"),
        (NAMED[:2], "say --topic"),
        (("a:1", "t"), "got 2"),
        (("a:1", "t", "x", "all", "3"), "num-records: 'x'"),
        (("a:1", "t", "7", "0", "3"), "--producer-acks must be 1 or all"),
        ((*NAMED, "--record-header-size", "-2"), "-1 or more"),
    ],
)
def test_what_is_missing_or_wrong_is_told(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        _settled(*words)


def test_a_record_is_as_large_as_it_should_be() -> None:
    plain = make_sample(_settled(*NAMED), random.Random(0))
    assert (plain.key, len(plain.value), plain.headers) == (None, 3, ())
    more = ("--record-key-size", "4", "--num-headers", "2", "--record-header-key-size", "5")
    sample = make_sample(_settled(*NAMED, *more, "--record-header-size", "-1"), random.Random(0))
    assert sample.key is not None
    assert len(sample.key) == 4
    assert [(len(name), value) for name, value in sample.headers] == [(5, None)] * 2
