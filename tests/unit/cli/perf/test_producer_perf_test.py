"""plog/cli/perf/producer_perf_test.py: payloads and invalid options."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from plog.cli.options import UsageError
from plog.cli.perf.producer_perf_test import check, configure, payloads


def _parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    configure(parser)
    return parser.parse_args(["--topic", "t", "--num-records", "9", "--throughput", "-1", *words])


def test_payloads_are_letters_numbers_or_parts_of_a_file(tmp_path: Path) -> None:
    letters = payloads(_parsed("--record-size", "300"))()
    assert len(letters) == 300
    assert letters.decode().isalpha()
    assert letters.decode().isupper()
    count = payloads(_parsed("--payload-monotonic"))
    assert [count(), count()] == [b"0", b"1"]
    path = tmp_path / "parts"
    path.write_bytes(b"a||b||")
    part = payloads(_parsed("--payload-file", str(path), "--payload-delimiter", "||"))
    assert {part() for _ in range(100)} == {b"a", b"b"}


def test_empty_payload_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    with pytest.raises(UsageError, match="is empty"):
        payloads(_parsed("--payload-file", str(path)))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--transactional-id", "x"], "does not measure transactions"),
        (["--transaction-duration-ms", "7"], "does not measure transactions"),
        (["--warmup-records", "9"], "less than --num-records"),
    ],
)
def test_invalid_options_are_an_error(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(_parsed("--record-size", "1", *words))


def test_property_option_accepts_several_settings() -> None:
    words = ("--producer-props", "acks=1", "linger.ms=0", "--command-property", "retries=1")
    arguments = _parsed("--record-size", "1", *words)
    assert dict(arguments.command_properties) == {"acks": "1", "linger.ms": "0", "retries": "1"}
