"""A produce request that meets an exception at each call of a port in turn.

The history: an idempotent producer fills two segments through the broker's own `dispatch`. The same
test for appends without a broker is in tests/unit/log/test_log_exceptions.py.
"""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.types import Uuid
from plog.wire.messages.produce import ProduceResponse
from tests.helpers.injection import Faults, When
from tests.helpers.sim.sim_files import SimFiles
from tests.sim.batches import produce_request
from tests.sim.crash_points import values_batch
from tests.sim.planted_bugs import planted
from tests.sim.site import Observed, Site

BATCHES = 6
ATTEMPTS = 5


class _History:
    """A broker and its producer; `acknowledged` contains the values by offset."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.struck: list[str] = []
        self.faults.on_raise = self.struck.append
        self.site = Site(SimFiles(), faults=self.faults)
        self.site.start()
        self.topic_id: Uuid = self.site.create(Observed(), "kept", 1, retention_ms="-1")
        self.producer_id = self.site.producer_id()
        self.acknowledged: dict[int, bytes] = {}
        self.is_offline = False

    def run(self) -> None:
        """Send each batch until it is acknowledged or the log directory is offline."""
        for number in range(BATCHES):
            if not any(self._send(number) for _ in range(ATTEMPTS)):
                assert self.is_offline, self.struck
                return

    def _send(self, number: int) -> bool:
        batch = values_batch(
            self.topic_id,
            0,
            f"{number}",
            2,
            producer_id=self.producer_id,
            base_sequence=2 * number,
        )
        answer = self.site.ask(produce_request([batch], acks=-1), 13, ProduceResponse)
        result = answer.responses[0].partition_responses[0]
        self.is_offline = bool(self.site.broker.log_manager.offline_dirs)
        if result.error_code:
            allowed = {
                ErrorCode.UNKNOWN_SERVER_ERROR,
                ErrorCode.KAFKA_STORAGE_ERROR,
                # The batch was appended, but its deadline could not be set.
                ErrorCode.REQUEST_TIMED_OUT,
            }
            assert result.error_code in allowed, self.struck
            return False
        self.acknowledged.update(enumerate(batch.values, result.base_offset))
        return True


def _try_every_call(when: When) -> int:
    """Raise an exception at each call of the history in turn; return the number of calls."""
    number, is_over = 0, False
    while not is_over:
        number += 1
        history = _History()
        history.faults.arm(history.faults.calls + number, when, MemoryError("injected"))
        history.run()
        is_over = history.faults.is_armed
        history.faults.disarm()
        site, acknowledged = history.site, history.acknowledged
        if not history.is_offline:
            assert site.read(history.topic_id, 0) == (0, acknowledged), history.struck
            assert len(acknowledged) == 2 * BATCHES
        site = Site(site.files.kill(), site.ports.clock.now_ms())
        site.start()
        _, values = site.read(history.topic_id, 0)
        kept = {offset: values.pop(offset, None) for offset in acknowledged}
        assert kept == acknowledged, history.struck
        assert history.is_offline or not values, history.struck
    return number


@pytest.mark.parametrize("when", list(When))
def test_acknowledged_records_survive_an_exception_at_any_port_call_of_a_produce(
    when: When,
) -> None:
    assert _try_every_call(when) > 30


def test_exceptions_reveal_an_append_that_undoes_only_os_errors() -> None:
    with planted("undo-os-errors-only"), pytest.raises(AssertionError):
        _try_every_call(When.AFTER)
