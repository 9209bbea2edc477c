"""The command ``python -m plogd.testing.controlled_main``: a broker that a test controls.

    controlled_main CONTROL_FD OFFSET_S [arguments of the broker]

It runs the same daemon as ``python -m plogd``, on a `ControlledMachine`. CONTROL_FD is the broker's
end of the channel in control_channel.py, inherited from the parent process; the broker's time is
OFFSET_S seconds ahead. Started by BrokerProcess. No command or setting of the daemon starts it.
"""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, Any

from plogd.__main__ import run
from plogd.tap import Options

if TYPE_CHECKING:
    from plogd.service import BrokerService


def main() -> int:
    """Run a broker until it is stopped; return the exit code."""
    control_fd, offset_s, *argv = sys.argv[1:]

    def install_reactor() -> Any:
        # Imported here, like the other modules, because `run` first disables the garbage collector.
        from twisted.internet.main import installReactor

        from plogd.testing.mock_time import MovableReactor

        reactor = MovableReactor(float(offset_s))
        installReactor(reactor)
        return reactor

    def make_service(options: Options, reactor: Any) -> BrokerService:
        return _make_service(options, reactor, socket.socket(fileno=int(control_fd)))

    return run(argv, install_reactor, make_service)


def _make_service(options: Options, reactor: Any, control: socket.socket) -> BrokerService:
    from plogd.net.thread_jobs import SWITCH_INTERVAL_S
    from plogd.service import BrokerService
    from plogd.testing.control_server import ControlServer
    from plogd.testing.controlled_machine import ControlledMachine
    from plogd.testing.controls import Controls

    assert options.loaded is not None
    # This process contains nothing but the broker, so the interval is that of an installed one.
    machine = ControlledMachine(reactor, switch_interval_s=SWITCH_INTERVAL_S)
    service = BrokerService(
        options.loaded, reactor, load=options.load, observer=options.observer, machine=machine
    )
    ControlServer(control, Controls(service, machine), reactor)
    return service


if __name__ == "__main__":
    sys.exit(main())
