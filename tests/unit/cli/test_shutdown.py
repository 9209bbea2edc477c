"""plog/cli/shutdown.py: the first signal asks, a later one insists."""

from __future__ import annotations

import os
import signal

import pytest

from plog.cli import shutdown as stopping_module
from plog.cli.shutdown import Shutdown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_asks_for_the_end(number: signal.Signals, code: int) -> None:
    woken = []
    before = signal.getsignal(number)
    with Shutdown(lambda: woken.append(True)) as stopping:
        assert not stopping.requested
        assert stopping.exit_code == 0
        os.kill(os.getpid(), number)
        assert stopping.wait(10)
        assert stopping.requested
    assert woken == [True]
    assert stopping.exit_code == code
    assert signal.getsignal(number) is before


def test_one_wish_may_come_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [5.0]
    monkeypatch.setattr(stopping_module.time, "monotonic", lambda: now_s[0])
    stopping = Shutdown()
    stopping._handle(signal.SIGINT, None)
    stopping._handle(signal.SIGINT, None)
    now_s[0] = 6.0
    with pytest.raises(KeyboardInterrupt):
        stopping._handle(signal.SIGINT, None)
