"""The command line of the broker, for ``twistd plog`` and for ``plog-broker`` alike.

Options become a loaded configuration; service.py makes the broker from it. A configuration that
cannot be used ends here, with every problem named at once, before anything is touched.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from functools import cache

from twisted.application.service import IService
from twisted.python import usage

from plog.version import VERSION
from plogd.config import ConfigError, LoadedConfig, load_config
from plogd.logging import LineObserver, stream_observer
from plogd.settings_file import read_settings_file


class Options(usage.Options):
    """``[--config FILE]... [-o KEY=VALUE]... [--check-config]``."""

    synopsis = "[--config server.properties] [-o key=value ...] [--check-config]"
    longdesc = (
        "A publish-subscribe log broker that speaks Kafka's protocol. Settings have Kafka's names; "
        "see docs/configuration.md. conf.d/*.properties beside the file are read after it."
    )
    optFlags = [["check-config", None, "Check the settings, print what is wrong, and exit."]]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.files: list[str] = []
        self.overrides: list[str] = []
        self.observer: LineObserver | None = None
        self.loaded: LoadedConfig | None = None

    def opt_config(self, path: str) -> None:
        """A file of settings in the form of Kafka's server.properties; may be given again."""
        self.files.append(path)

    opt_c = opt_config

    def opt_override(self, assignment: str) -> None:
        """KEY=VALUE: a setting that goes before those in files; may be given again."""
        self.overrides.append(assignment)

    opt_o = opt_override

    def opt_version(self) -> None:
        """Print the version and exit."""
        print(f"plog {VERSION}")
        raise SystemExit(0)

    def load(self) -> LoadedConfig:
        """The settings as they are in the files now. Raises ConfigError."""
        return load_config(self.files, self.overrides, read=read_settings_file)

    def postOptions(self) -> None:
        """Load the settings; `--check-config` ends here.

        Raises UsageError, which twistd prints, naming every setting that is wrong.
        """
        try:
            self.loaded = self.load()
        except ConfigError as error:
            lines = [str(error), *(f"warning: {warning}" for warning in error.warnings)]
            problems = "\n".join(lines)
            raise usage.UsageError(f"the settings cannot be used:\n{problems}") from error
        if self["check-config"]:
            for warning in [*self.loaded.warnings, *_check_certificates(self.loaded)]:
                print(f"warning: {warning}")
            print("the settings can be used")
            raise SystemExit(0)
        self.observer = standard_observer()
        self.observer.set_level(self.loaded.config.plog_log_level)
        # twistd asks for an observer by its name, unless it was told itself where to log.
        twistd = self.parent
        if twistd is not None and not (twistd.get("logger") or twistd.get("logfile")):
            twistd["logger"] = f"{__name__}.{standard_observer.__name__}"


def _check_certificates(loaded: LoadedConfig) -> tuple[str, ...]:
    """Read what the TLS listeners need; what to warn about. Raises UsageError."""
    if not loaded.config.tls_listeners():
        return ()
    from plogd.net.tls_reload import prepare_tls

    try:
        return prepare_tls(loaded.config, time.time_ns() // 1_000_000).warnings
    except ConfigError as error:
        raise usage.UsageError(f"the settings cannot be used:\n{error}") from error


@cache
def standard_observer() -> LineObserver:
    """The observer that writes this process' log lines to standard error."""
    return stream_observer(sys.stderr, os.environ, "info")


def makeService(options: Options) -> IService:
    """The broker as a Twisted service; twistd calls this."""
    from twisted.internet import reactor

    from plogd.service import BrokerService

    assert options.loaded is not None
    service = BrokerService(options.loaded, reactor, load=options.load, observer=options.observer)
    if options.parent is not None:
        # twistd knows no exit code: it would end with 0 though the broker could not start.
        atexit.register(lambda: _exit_with(service.exit_code))
    return service


def _exit_with(code: int) -> None:
    if code:
        sys.stderr.flush()
        os._exit(code)
