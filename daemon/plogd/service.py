"""The daemon: the pure broker wired to this machine, as a Twisted service.

Makes the broker on top of a `Machine`'s ports (machine.py), and around it what talks to the
outside: listeners, /metrics, periodic tasks. What it does to its process is process.py's, and
everything the broker *does* is elsewhere. tap.py and __main__.py make it and run it; the reactor is
an argument.

Start: read the data, then open the listeners, then say "ready". Stop: take no more requests, answer
those that are under way, then make everything durable. Reactor thread only.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from plog.errors import PlogError
from plog.version import VERSION
from plogd.broker import Broker
from plogd.config import BrokerConfig, ConfigError, LoadedConfig, Reload, reloadable
from plogd.config.config_loader import without_tls
from plogd.http.health import Status
from plogd.http.process_metrics import register_process_metrics
from plogd.logging import LineObserver
from plogd.machine import Machine
from plogd.metrics import Registry
from plogd.net.advertised_listeners_check import AdvertisedCheck
from plogd.net.connection_gauges import register_connection_gauges
from plogd.net.connections import Connections
from plogd.net.detached_jobs import DetachedJobs
from plogd.net.listeners import Listeners
from plogd.ports import Later
from plogd.process import OwnProcess
from plogd.tasks import BROKER_TASKS, Running, RunningTasks, start_tasks

if TYPE_CHECKING:
    from plogd.net.tls_reload import PreparedTls, TlsServers

log = Logger()

_ANSWERS_MAX_MS = 10_000.0
"""How long a stop waits for clients to read the answers to requests under way."""
_OUTSIDE_MAX_S = 15.0
"""How long files of settings and certificates may take, and names; longer than reading a pipe."""


class BrokerService(Service):
    """See the module's text. `exit_code` is what the process should end with.

    `reactor` is Any: Twisted's type for it lacks most of what it is. `load` reads the settings
    again, for a reload; `observer` is what the log level belongs to, None if that is not ours.
    `machine` and `process` are this one's, for the broker alone, unless told otherwise.
    """

    name = "plog"

    def __init__(
        self,
        loaded: LoadedConfig,
        reactor: Any,
        *,
        load: Callable[[], LoadedConfig],
        observer: LineObserver | None,
        machine: Machine | None = None,
        process: OwnProcess | None = None,
    ) -> None:
        self.exit_code = 0
        self._loaded = loaded
        self._reactor = reactor
        self._load = load
        self._observer = observer
        self._log_level = loaded.config.plog_log_level
        self._machine = machine or Machine(reactor)
        self._process = process or OwnProcess(os.environ)
        self._notifier = self._process.notifier
        self._clock = self._machine.clock
        self._registry = Registry()
        register_process_metrics(self._registry, start_time_seconds=self._clock.now_ms() / 1000)
        self._tasks: RunningTasks | None = None
        self._http: IListeningPort | None = None
        self._listeners: Listeners | None = None
        self._tls: TlsServers | None = None
        self._addresses = ""
        self._stopping = False

    # -- start --------------------------------------------------------------------------------

    def startService(self) -> None:
        """Begin to start; the broker serves when its data has been read."""
        super().startService()  # type: ignore[no-untyped-call]
        config = self._loaded.config
        where = ", ".join(os.path.abspath(path) for path in config.data_dirs)
        if config.log_dirs is None:
            log.info("data goes to {where}, because log.dirs is not set", where=where)
        else:
            log.info("data is in {where}", where=where)
        for warning in self._loaded.warnings:
            log.warn("{warning}", warning=warning)
        limit = self._process.begin(self._hang_up)
        log.info(
            "plog {version} starts as broker {node_id}; it may open {limit} files",
            version=VERSION,
            node_id=config.node_id,
            limit=limit,
        )
        self._machine.files.descriptors.set_limit(limit, config.max_connections)
        self._make_parts()
        try:
            self._tls = self._make_tls()
            self._http = self._listen_http()
        except (CannotListenError, ConfigError) as error:
            self._cannot_start(error)
            return
        # By `map`, so that an error in `_serve` ends the process, too, and is not just logged.
        self.broker.start().map(lambda _: self._serve()).then(lambda _: None, self._cannot_start)

    def _make_parts(self) -> None:
        config, machine = self._loaded.config, self._machine
        self._jobs = machine.make_jobs()
        self._detached_jobs = DetachedJobs(self._reactor)
        self.broker = Broker(
            config,
            clock=machine.clock,
            timers=machine.timers,
            files=machine.files,
            random=machine.random,
            jobs=self._jobs,
            turn=machine.turn,
            metrics=self._registry,
            report=_report,
            on_bug=_log_bug,
        )
        self.broker.on_last_log_dir_failed = self._no_log_dir_left
        self.broker.on_config = self._use
        self.broker.logs = self._observer
        self._connections = Connections(
            machine.dispatch_of(self.broker),
            config,
            clock=machine.clock,
            timers=machine.timers,
            jobs=self._jobs,
            turn=machine.turn,
            descriptors=machine.files.descriptors,
        )
        self.broker.copy_memory = self._connections.memory
        register_connection_gauges(self._registry, self._connections)
        self._advertised = AdvertisedCheck(config, self._connections, resolve=self._resolve)
        self.broker.on_address_told = self._advertised.record_advertised
        self.broker.on_client_works = self._advertised.record_work

    def _resolve(self, host: str) -> Later[object]:
        return self._detached_jobs.run(
            f"the look-up of {host}", lambda: socket.getaddrinfo(host, None), _OUTSIDE_MAX_S
        )

    def _make_tls(self) -> TlsServers | None:
        if not self._loaded.config.tls_listeners():
            return None
        from plogd.net.tls_reload import TlsServers, prepare_tls

        prepared = prepare_tls(self._loaded.config, self._clock.now_ms())
        for warning in prepared.warnings:
            log.warn("{warning}", warning=warning)
        return TlsServers(prepared)

    def _listen_http(self) -> IListeningPort | None:
        if self._loaded.config.plog_http_port == 0:
            return None
        from plogd.http import site  # A tenth of a start, for those who want it.

        pages = site.make_site(
            self._machine.timers,
            self._reactor.seconds,
            metrics=self._registry.lines,
            health=self._health,
            ready=self._ready,
        )
        return site.listen(self._reactor, self._loaded.config, pages)

    def _serve(self) -> None:
        """The data has been read: open the listeners and tell everybody."""
        if self._stopping:
            return
        config = self._loaded.config
        tls = self._tls.by_listener if self._tls is not None else None
        listeners = Listeners(self._reactor, self._connections, tls)
        try:
            bound = listeners.open_all(config.bound_listeners())
        except CannotListenError as error:
            self._cannot_start(error)
            return
        self._listeners = listeners
        self._addresses = ",".join(map(str, bound))
        self._tasks = start_tasks(
            BROKER_TASKS,
            Running(broker=self.broker, connections=self._connections),
            config=config,
            reactor=self._reactor,
            registry=self._registry,
        )
        self._process.serving()
        log.info("listening on {addresses}", addresses=self._addresses)
        self._advertised.start()
        self._notifier.ready(f"listening on {self._addresses}")

    def _cannot_start(self, error: Exception) -> None:
        if self._stopping:
            return
        if isinstance(error, PlogError | OSError | CannotListenError):
            log.critical("cannot start: {error}", error=str(error))
        else:
            _log_bug("start", error)
        self._end_process()

    def _no_log_dir_left(self) -> None:
        log.critical("no log directory is left: the broker ends")
        self._end_process()

    def _end_process(self) -> None:
        self.exit_code = 1
        if not self._stopping:
            self._reactor.callLater(0, self._reactor.stop)

    # -- health -------------------------------------------------------------------------------

    def _health(self) -> Status:
        offline = self.broker.log_manager.offline_dirs
        return Status(ok=not offline, details={"offlineLogDirs": offline})

    def _ready(self) -> Status:
        serving = self.broker.is_ready and self._listeners is not None and not self._stopping
        return Status(ok=serving, details={"version": VERSION})

    # -- reload -------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        self._reactor.callFromThread(self.reload)

    def reload(self) -> None:
        """Read the settings again and use those that may change while the broker runs.

        New connections get the certificates that are in the files now. If those cannot be used,
        the old ones and the settings that name them stay; everything else is taken over. Nothing
        changes if the files cannot be read in time, as on a file system that hangs.
        """
        self._notifier.reloading(self._clock.monotonic_ms())
        read = self._detached_jobs.run("reading the settings", self._load, _OUTSIDE_MAX_S)
        read.then(self._loaded_again, self._not_loaded)

    def _not_loaded(self, error: Exception) -> None:
        if self._stopping:
            return
        if isinstance(error, ConfigError):
            for problem in error.problems:
                log.error("the settings stay as they were: {problem}", problem=problem)
            for warning in error.warnings:
                log.warn("{warning}", warning=warning)
        elif isinstance(error, OSError):
            log.error("the settings stay as they were: {error}", error=error.strerror or str(error))
        else:
            _log_bug("reload", error)
        self._reloaded()

    def _loaded_again(self, loaded: LoadedConfig) -> None:
        if self._stopping:
            return
        reload = reloadable(self._loaded.config, loaded.config)
        if self._tls is None:
            self._take_over(loaded, reload)
        else:
            self._reload_tls(self._tls, loaded, reload)

    def _reload_tls(self, tls: TlsServers, loaded: LoadedConfig, reload: Reload) -> None:
        from plogd.net.tls_reload import prepare_tls

        def prepared(new: PreparedTls) -> None:
            if self._stopping:
                return
            for warning in new.warnings:
                log.warn("{warning}", warning=warning)
            tls.use(new)
            self._take_over(loaded, reload)

        def failed(error: Exception) -> None:
            if self._stopping:
                return
            if not isinstance(error, ConfigError | OSError):
                _log_bug("reload of certificates", error)
            text = error.strerror if isinstance(error, OSError) else None
            what = "; ".join((text or str(error)).splitlines())
            log.error("the certificates stay as they were: {what}", what=what)
            self._take_over(loaded, without_tls(reload, self._loaded.config))

        now_ms = self._clock.now_ms()
        prepare = self._detached_jobs.run(
            "reading the certificates", lambda: prepare_tls(reload.config, now_ms), _OUTSIDE_MAX_S
        )
        prepare.then(prepared, failed)

    def _reloaded(self) -> None:
        if self._listeners is not None:
            self._notifier.ready(f"listening on {self._addresses}")

    def _take_over(self, loaded: LoadedConfig, reload: Reload) -> None:
        for warning in loaded.warnings:
            log.warn("{warning}", warning=warning)
        self._loaded = LoadedConfig(
            config=reload.config, warnings=loaded.warnings, sources=loaded.sources
        )
        # Under the old level or the new one, whichever lets it be seen.
        told_first = self._observer is not None and self._observer.writes("info")
        if told_first:
            self._tell(reload)
        self.broker.update_config(reload.config)
        if not told_first:
            self._tell(reload)
        self._reloaded()

    def _tell(self, reload: Reload) -> None:
        log.info(
            "reloaded the settings: {applied} changed; {pending} wait for a restart",
            applied=", ".join(reload.applied) or "nothing",
            pending=", ".join(reload.needs_restart) or "none",
        )
        covered = [name for name in reload.applied if name in self.broker.config.dynamic.names]
        if covered:
            log.info(
                "{names}: what clients have set at run time still counts", names=", ".join(covered)
            )

    def _use(self, config: BrokerConfig) -> None:
        """The settings in use have changed, by a reload or by a client."""
        self._connections.apply_settings(config)
        # Only when it changes: a client may have set another level for now (loggers.py).
        if self._observer is not None and config.plog_log_level != self._log_level:
            self._log_level = config.plog_log_level
            self._observer.set_level(self._log_level)

    # -- stop ---------------------------------------------------------------------------------

    def stopService(self) -> Deferred[None]:
        """Answer what is under way, make everything durable, end; fires when that is done."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._stopping = True
        self._process.stopping()
        self._notifier.stopping()
        stopped = Deferred.fromCoroutine(self._stop())
        stopped.addErrback(_log_failure, "the stop was not clean")
        return stopped

    async def _stop(self) -> None:
        log.info("stopping")
        if self._http is not None:
            await maybeDeferred(self._http.stopListening)
        if self._listeners is not None:
            await self._listeners.close()
        cut = self._reactor.callLater(_ANSWERS_MAX_MS / 1000, self._connections.abort_all)
        await as_deferred(self._connections.close_all())
        if cut.active():
            cut.cancel()
        if self._tasks is not None:
            await self._tasks.stop()
        await as_deferred(self.broker.stop())
        self._detached_jobs.close()
        self._jobs.close()
        log.info("stopped")


def as_deferred(later: Later[Any]) -> Deferred[Any]:
    """A Later as the shell waits for it."""
    deferred: Deferred[Any] = Deferred()
    later.then(deferred.callback, deferred.errback)
    return deferred


def _report(message: str, **fields: object) -> None:
    level = LogLevel.levelWithName(str(fields.pop("level", "info")))
    log.emit(level, message, **fields)


def _log_bug(where: str, error: Exception) -> None:
    failure = Failure(error, type(error), error.__traceback__)
    log.failure("unexpected error: {where}", failure, where=where)


def _log_failure(failure: Failure, what: str) -> None:
    log.failure("{what}", failure, what=what)
