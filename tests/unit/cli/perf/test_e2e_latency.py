"""plog/cli/perf/e2e_latency.py: named and positional arguments, and the records sent."""

from __future__ import annotations

import argparse
import random

import pytest

from plog.cli.options import UsageError
from plog.cli.perf.e2e_latency import apply_positions, configure, make_sample


def _arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    configure(parser)
    arguments = parser.parse_args(words)
    apply_positions(arguments)
    return arguments


NAMED = (
    "--bootstrap-server", "a:1", "--topic", "t", "--num-records", "7", "--producer-acks", "all",
    "--record-size", "3",
)  # fmt: skip


@pytest.mark.parametrize("words", [NAMED, ("a:1", "t", "7", "all", "3")])
def test_positional_arguments_equal_named_ones(words: tuple[str, ...]) -> None:
    arguments = _arguments(*words)
    assert (arguments.bootstrap_servers, arguments.topic) == ("a:1", "t")
    assert (arguments.num_records, arguments.producer_acks) == (7, "all")
    assert (arguments.record_size, arguments.command_config) == (3, None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--bootstrap-server is required"),
        (NAMED[:2], "--topic is required"),
        (("a:1", "t"), "got 2"),
        (("a:1", "t", "x", "all", "3"), "num-records: 'x'"),
        (("a:1", "t", "7", "0", "3"), "--producer-acks must be 1 or all"),
        ((*NAMED, "--record-header-size", "-2"), "-1 or more"),
    ],
)
def test_missing_or_invalid_argument_is_an_error(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _arguments(*words)


def test_sample_has_the_requested_sizes() -> None:
    plain = make_sample(_arguments(*NAMED), random.Random(0))
    assert (plain.key, len(plain.value), plain.headers) == (None, 3, ())
    options = ("--record-key-size", "4", "--num-headers", "2", "--record-header-key-size", "5")
    sample = make_sample(
        _arguments(*NAMED, *options, "--record-header-size", "-1"), random.Random(0)
    )
    assert sample.key is not None
    assert len(sample.key) == 4
    assert [(len(name), value) for name, value in sample.headers] == [(5, None)] * 2
