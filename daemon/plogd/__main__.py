"""The command ``plog-broker`` or ``python -m plogd``: the broker in the foreground, without twistd.

The exit code is 0 after a clean shutdown (SIGTERM or SIGINT), 1 if the broker cannot start or has
to stop because of an error, and 2 if the command line or the settings are invalid or contradict a
socket passed by systemd.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet import epollreactor
from twisted.logger import globalLogBeginner
from twisted.python import usage

from plog.error_base import PlogError
from plogd.sdnotify import ServiceNotifier
from plogd.tap import Options

if TYPE_CHECKING:
    from plogd.service import BrokerService


def main(argv: Sequence[str] | None = None) -> int:
    """Run a broker until a signal stops it; return the exit code."""
    return run(sys.argv[1:] if argv is None else argv, _install_reactor, _make_service)


def run(
    argv: Sequence[str],
    install_reactor: Callable[[], Any],
    make_service: Callable[[Options, Any], BrokerService],
) -> int:
    """Run a broker as `main` does, on the reactor that `install_reactor` returns.

    The reactor is Any for the reason given in service.py.
    """
    # Garbage collections during the imports would take a fifth of the startup time; process.py
    # enables the collector once the broker serves requests.
    gc.disable()
    options = Options()
    options.synopsis = f"Usage: plog-broker {options.synopsis}"
    try:
        options.parseOptions(list(argv))  # type: ignore[no-untyped-call]
    except usage.UsageError as error:
        print(f"plog-broker: {error}", file=sys.stderr)
        # With this, the status of the failed systemd unit also contains the reason.
        ServiceNotifier(os.environ).status(str(error))
        return 2
    try:
        options.assign_node_id()
    except PlogError as error:
        print(f"plog-broker: cannot start: {error}", file=sys.stderr)
        ServiceNotifier(os.environ).status(f"cannot start: {error}")
        return 1
    assert options.observer is not None
    # The observer writes to standard error, which Twisted would otherwise redirect to the log.
    globalLogBeginner.beginLoggingTo([options.observer], redirectStandardIO=False)
    reactor = install_reactor()
    service = make_service(options, reactor)
    service.startService()
    # The reactor waits for the Deferred of stopService before it stops, so the data is durable when
    # the process ends.
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.run()
    return service.exit_code


def _install_reactor() -> Any:
    # This comes first, because importing the reactor installs the default reactor if none is
    # installed.
    epollreactor.install()
    from twisted.internet import reactor

    return reactor


def _make_service(options: Options, reactor: Any) -> BrokerService:
    # Imported here, after `run` has disabled the garbage collector and checked the settings.
    from plogd.service import BrokerService

    assert options.loaded is not None
    return BrokerService(options.loaded, reactor, load=options.load, observer=options.observer)


if __name__ == "__main__":
    sys.exit(main())
