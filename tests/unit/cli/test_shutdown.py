"""plog/cli/shutdown.py: the first signal requests the end, a later one interrupts."""

from __future__ import annotations

import os
import signal

import pytest

from plog.cli import shutdown as shutdown_module
from plog.cli.shutdown import Shutdown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_requests_the_end(number: signal.Signals, code: int) -> None:
    wakeups = []
    before = signal.getsignal(number)
    with Shutdown(lambda: wakeups.append(True)) as stopping:
        assert not stopping.requested
        assert stopping.exit_code == 0
        os.kill(os.getpid(), number)
        assert stopping.wait(60)
        assert stopping.requested
    assert wakeups == [True]
    assert stopping.exit_code == code
    assert signal.getsignal(number) is before


def test_second_signal_interrupts_only_after_half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [5.0]
    monkeypatch.setattr(shutdown_module.time, "monotonic", lambda: now_s[0])
    stopping = Shutdown()
    stopping._handle(signal.SIGINT, None)
    stopping._handle(signal.SIGINT, None)
    now_s[0] = 6.0
    with pytest.raises(KeyboardInterrupt):
        stopping._handle(signal.SIGINT, None)
