"""The broker's command line, shared by ``twistd plog`` and ``plog-broker``.

`Options` loads the configuration, and service.py builds the broker from it. An invalid
configuration is rejected here with a list of all problems, before the broker accesses any of its
data. "Tap" is Twisted's name for the module with a plugin's `Options` and `makeService`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

from twisted.application.service import IService
from twisted.python import usage

from plog.error_base import PlogError
from plog.version import VERSION
from plogd.config import ConfigError, LoadedConfig, load_config
from plogd.logging import LineObserver, stream_observer
from plogd.settings_file import read_settings_file


class Options(usage.Options):
    """``[--config FILE]... [--optional-config FILE]... [-o KEY=VALUE]... [--check-config]``."""

    synopsis = "[--config server.properties] [-o key=value ...] [--check-config]"
    longdesc = (
        "A publish-subscribe log broker that speaks the Kafka protocol. Settings have the same"
        " names as in Kafka; see docs/configuration.md. After each settings file, the broker"
        " reads the conf.d/*.properties files in the same directory."
    )
    optFlags = [["check-config", None, "Check the settings, print the problems, and exit."]]
    optParameters = [
        [
            "example",
            None,
            None,
            "Template that the error message for a missing settings file suggests copying.",
        ]
    ]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.files: list[str] = []
        self.optional_files: set[Path] = set()
        self.overrides: list[str] = []
        self.observer: LineObserver | None = None
        self.loaded: LoadedConfig | None = None
        self._node_id: int | None = None
        """The id that the broker has got without ``node.id``; a reload keeps it."""

    def opt_config(self, path: str) -> None:
        """A settings file in the format of Kafka's server.properties; may be repeated."""
        self.files.append(path)

    opt_c = opt_config

    def opt_optional_config(self, path: str) -> None:
        """Like --config, but the file may be missing; conf.d next to it is read in any case."""
        self.files.append(path)
        self.optional_files.add(Path(path))

    def opt_override(self, assignment: str) -> None:
        """KEY=VALUE: a setting that overrides the settings files; may be repeated."""
        self.overrides.append(assignment)

    opt_o = opt_override

    def opt_version(self) -> None:
        """Print the version and exit."""
        print(f"plog {VERSION}")
        raise SystemExit(0)

    def load(self) -> LoadedConfig:
        """Read the settings files and return the settings. Raises ConfigError."""
        loaded = load_config(
            self.files,
            self.overrides,
            read=self._read_file,
            state_directories=os.environ.get("STATE_DIRECTORY", ""),
        )
        if self._node_id is None or not loaded.config.lacks_node_id:
            return loaded
        return replace(loaded, config=replace(loaded.config, node_id=self._node_id))

    def assign_node_id(self) -> None:
        """Get an id if ``node.id`` is not set, which may wait for ZooKeeper. Raises PlogError."""
        assert self.loaded is not None
        if self.loaded.config.lacks_node_id:
            # Only then, because it loads parts of the broker.
            from plogd.node_id import find_node_id

            self._node_id = find_node_id(self.loaded.config)
            config = replace(self.loaded.config, node_id=self._node_id)
            self.loaded = replace(self.loaded, config=config)

    def _read_file(self, file: Path) -> bytes:
        try:
            return read_settings_file(file)
        except FileNotFoundError as error:
            # A symbolic link to a missing file is a mistake: the operator wants its settings.
            if file in self.optional_files and not file.is_symlink():
                return b""
            if self["example"] and not file.is_symlink():
                remedy = f"not found; copy {self['example']} there and edit it"
                raise OSError(0, remedy, str(file)) from error
            raise

    def postOptions(self) -> None:
        """Load the settings; exit if `--check-config` is given.

        Raises UsageError, which lists every invalid setting; twistd prints it.
        """
        try:
            self.loaded = self.load()
        except ConfigError as error:
            lines = [str(error), *(f"warning: {warning}" for warning in error.warnings)]
            problems = "\n".join(lines)
            raise usage.UsageError(f"cannot use the settings:\n{problems}") from error
        if self["check-config"]:
            for warning in [*self.loaded.warnings, *_check_certificates(self.loaded)]:
                print(f"warning: {warning}")
            print("the settings are valid")
            raise SystemExit(0)
        self.observer = standard_observer()
        self.observer.set_level(self.loaded.config.plog_log_level)
        # twistd looks up the observer by name, unless its own options say where to log.
        twistd = self.parent
        if twistd is not None and not (twistd.get("logger") or twistd.get("logfile")):
            twistd["logger"] = f"{__name__}.{standard_observer.__name__}"


def _check_certificates(loaded: LoadedConfig) -> tuple[str, ...]:
    """Read the certificates of the TLS listeners; return warnings. Raises UsageError."""
    if not loaded.config.tls_listeners():
        return ()
    # Without TLS listeners, OpenSSL is never loaded.
    from plogd.net.tls.tls_reload import prepare_tls

    try:
        return prepare_tls(loaded.config, time.time_ns() // 1_000_000).warnings
    except ConfigError as error:
        raise usage.UsageError(f"cannot use the settings:\n{error}") from error


@cache
def standard_observer() -> LineObserver:
    """Return the observer that writes this process's log lines to standard error."""
    # One instance, because twistd looks it up by name after `postOptions` has set its level.
    return stream_observer(sys.stderr, os.environ, "info")


def makeService(options: Options) -> IService:
    """Return the broker as a Twisted service; twistd calls this."""
    from twisted.internet import reactor

    # Imported here, so that an error in the settings is reported before the broker is loaded.
    from plogd.net.passed_sockets import restore_variables
    from plogd.service import BrokerService

    assert options.loaded is not None
    # Without /proc, as in some chroots, a broker under twistd does not get sockets from systemd.
    with contextlib.suppress(OSError):
        restore_variables(os.environ, Path("/proc/self/environ").read_bytes())
    try:
        options.assign_node_id()
    except PlogError as error:
        raise SystemExit(f"cannot start: {error}") from error
    service = BrokerService(options.loaded, reactor, load=options.load, observer=options.observer)
    if options.parent is not None:
        # twistd itself would exit with 0 even if the broker could not start.
        atexit.register(lambda: _exit_with(service.exit_code))
    return service


def _exit_with(code: int) -> None:
    if code:
        # os._exit does not flush buffers.
        sys.stderr.flush()
        # Calling sys.exit in an atexit function would not change the exit code.
        os._exit(code)
