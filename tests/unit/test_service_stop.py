"""The stop of the service: what it does before it waits for anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from plogd.config import load_config
from plogd.service import BrokerService
from plogd.testing.embedded_process import EmbeddedProcess


class _Closing:
    """A listener or an HTTP port that takes forever to close."""

    def __init__(self) -> None:
        self.is_closing = False

    def close(self) -> Deferred[None]:
        self.is_closing = True
        return Deferred()

    stopListening = close


def test_stop_closes_the_listeners_before_it_waits_for_the_http_port(tmp_path: Path) -> None:
    """A client that was accepted meanwhile would be disconnected instead of waiting."""
    loaded = load_config([], [f"log.dirs={tmp_path}"], read=Path.read_bytes)
    service: Any = BrokerService(
        loaded, Clock(), load=lambda: loaded, observer=None, process=EmbeddedProcess()
    )
    service._http, service._listeners = _Closing(), _Closing()
    service._supervision = Mock()
    service.stopService()
    assert service._listeners.is_closing
