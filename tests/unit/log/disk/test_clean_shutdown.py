"""The clean shutdown file: Kafka's format; it is removed durably."""

from __future__ import annotations

import random

import pytest

from plogd.log.disk.clean_shutdown import take_clean_mark, write_clean_mark
from tests.helpers.sim.sim_files import SimFiles


def test_missing_clean_mark_is_not_taken() -> None:
    assert take_clean_mark(SimFiles(["/d"]), "/d") is False


def test_clean_mark_is_taken_only_once() -> None:
    files = SimFiles(["/d"])
    write_clean_mark(files, "/d", 12)
    assert files.read_file("/d/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":12}'
    assert take_clean_mark(files, "/d") is True
    assert take_clean_mark(files, "/d") is False


@pytest.mark.parametrize("seed", range(10))
def test_taken_clean_mark_does_not_return_after_a_crash(seed: int) -> None:
    files = SimFiles(["/d"])
    write_clean_mark(files, "/d")
    take_clean_mark(files, "/d")
    assert take_clean_mark(files.crash(random.Random(seed)), "/d") is False
