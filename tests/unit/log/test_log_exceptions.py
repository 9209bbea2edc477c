"""Appends that meet an exception at each call of a port, synchronously and on a slow disk.

For any exception: no offset gets two values, acknowledged records are there, refused ones are not,
and no batch of a producer overtakes one that was refused.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from plog.errors import KafkaError, KafkaStorageError, OutOfOrderSequenceNumber
from plogd.log.log import Log
from plogd.log.log_results import AppendInfo
from tests.helpers.injection import Faults, When
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets, values

BATCHES = 9
TINY = replace(CONFIG, segment_bytes=700, index_interval_bytes=1, segment_index_bytes=48)
"""Segments of three batches, each but the first with entries in both indexes."""


class _Script:
    """An idempotent producer that sends each batch until it is accepted."""

    def __init__(self, *, slow: bool) -> None:
        self.faults = Faults()
        self.site = LogSite(faults=self.faults).start()
        self.log: Log = self.site.create("t-0", TINY)
        self.taken: dict[int, bytes] = {}
        self.in_doubt: list[bytes] = []
        if slow:
            self.site.files.append_ms = lambda path: 25.0
            self._send(0)
            self.site.files.append_ms = lambda path: 0.0
            assert self.site.manager.dirs.writes_of("/a").is_slow

    def run(self) -> None:
        """Send the remaining batches; stop if the directory goes offline."""
        for sequence in range(len(self.taken), BATCHES):
            while not self._send(sequence):
                if self.log.offline:
                    return
                assert not self._send(sequence + 1), "a batch was taken before a refused one"

    def _send(self, sequence: int) -> bool:
        value = f"{sequence}/{len(self.faults.raised)}".encode().ljust(150, b".")
        error: Exception | None = None
        try:
            info = self.site.append(
                self.log, value=value, producer_id=1, producer_epoch=0, base_sequence=sequence
            )
        except Exception as raised:
            error = raised
        self.site.settle()
        if error is None:
            error = self._error_of(info)
        if error is None:
            assert not info.duplicate
            self.taken[info.first_offset] = value
        elif isinstance(error, KafkaStorageError):
            # The batch may be in the file of a directory that is offline.
            self.in_doubt.append(value)
        else:
            expected = isinstance(error, OutOfOrderSequenceNumber)
            assert expected or type(error) is KafkaError or self.faults.caused(error), error
        return error is None

    def _error_of(self, info: AppendInfo) -> Exception | None:
        if info.writing is not None and not info.writing.is_written:
            assert info.writing.error is not None, "the append is neither written nor refused"
            return info.writing.error
        if self.log.offline and self.log.durable_end_offset <= info.last_offset:
            return KafkaStorageError("its sync failed")
        assert self.log.durable_end_offset > info.last_offset, "the append waits forever"
        return None


def _calls_of_a_run(*, slow: bool) -> tuple[int, int]:
    script = _Script(slow=slow)
    before = script.faults.calls
    script.run()
    assert len(base_offsets(script.log)) == 3
    return before, script.faults.calls


@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("slow", [False, True])
def test_exception_at_any_port_call_of_an_append_leaves_all_or_nothing(
    slow: bool, when: When
) -> None:
    before, after = _calls_of_a_run(slow=slow)
    assert after - before > 50
    for number in range(before + 1, after + 1):
        script = _Script(slow=slow)
        script.faults.arm(number, when, MemoryError("injected"))
        struck: list[str] = []
        script.faults.on_raise = struck.append
        script.run()
        assert struck
        taken = dict(script.taken)
        if not script.log.offline:
            assert values(script.log) == taken, struck
            assert len(taken) == BATCHES
        found = values(script.site.kill().log())
        kept = {offset: found.pop(offset, None) for offset in taken}
        assert kept == taken, struck
        assert set(found.values()) <= set(script.in_doubt), struck
        assert script.log.offline or not found, struck


@pytest.mark.parametrize("slow", [False, True])
def test_append_that_cannot_be_undone_takes_the_directory_offline(slow: bool) -> None:
    script = _Script(slow=slow)
    script.faults.arm(script.faults.calls + _append_call(slow=slow), When.AFTER, MemoryError("no"))
    script.site.files.fail_when(lambda operation: operation.name == "truncate", 5)
    script.run()
    assert script.log.offline
    assert script.site.offline == ["/a"]
    assert any(isinstance(error, MemoryError) for error in script.site.bugs)
    found = values(script.site.kill().log())
    assert {offset: found.get(offset) for offset in script.taken} == script.taken


def _append_call(*, slow: bool) -> int:
    """Return the number of the call that first appends to the records, from here on."""
    script = _Script(slow=slow)
    before = script.faults.calls
    for number in range(1, 20):
        probe = _Script(slow=slow)
        struck: list[str] = []
        probe.faults.on_raise = struck.append
        probe.faults.arm(before + number, When.BEFORE, MemoryError("probe"))
        probe.run()
        if "append" in struck[0] and struck[0].endswith(".log"):
            return number
    raise AssertionError("no append")
