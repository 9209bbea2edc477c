"""The daemon: the broker on this machine's ports, as a Twisted service.

`BrokerService` builds the broker on the ports of a `Machine` (machine.py) and connects it to
listeners, /metrics and periodic tasks. process.py manages the state of the whole process. tap.py
and __main__.py build and run the service; the reactor is an argument.

At startup, the service binds the addresses of the listeners, loads the data, starts accepting
clients, and then notifies systemd. At shutdown, it stops accepting requests, completes the requests
in progress, and then makes all data durable. Reactor thread only.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
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
from plogd.http.health import Checks
from plogd.http.process_metrics import register_process_metrics
from plogd.logging import LineObserver
from plogd.machine import Machine
from plogd.metrics import Registry
from plogd.net.advertised_listeners_check import AdvertisedCheck
from plogd.net.connection_gauges import register_connection_gauges
from plogd.net.connections import Connections
from plogd.net.detached_jobs import DetachedJobs
from plogd.net.host_name import find_host_name
from plogd.net.listeners import BoundListener, Listeners
from plogd.net.passed_sockets import PassedSocket, SocketUnusable, match_sockets
from plogd.ports import Later, Ports, spawn
from plogd.process import OwnProcess
from plogd.start_errors import listen_problem
from plogd.supervision import Supervision
from plogd.tasks import BROKER_TASKS, Running, RunningTasks, start_tasks

if TYPE_CHECKING:
    from plogd.net.tls.tls_reload import PreparedTls, TlsServers

log = Logger()

_RESPONSES_MAX_MS = 10_000.0
"""Maximum time that a shutdown waits for clients to read the responses to requests in progress."""
_OUTSIDE_MAX_S = 15.0
"""Timeout for reading settings and certificate files and for DNS lookups. It is longer than the
timeout for a pipe in settings_file.py."""


class BrokerService(Service):
    """A broker as a Twisted service. `exit_code` is the exit code for the process.

    Args:
        loaded: the settings to start with.
        reactor: Any, because Twisted's type for it lacks most of its methods.
        load: reads the settings again, for a reload.
        observer: applies the log level; None if the broker does not own the log.
        machine: the ports; by default, this machine's.
        process: the process; by default, this process, which runs only the broker.
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
        self._clock = self._machine.clock
        self._registry = Registry()
        register_process_metrics(self._registry, start_time_seconds=self._clock.now_ms() / 1000)
        self._tasks: RunningTasks | None = None
        self._http: IListeningPort | None = None
        self._listeners: Listeners | None = None
        self._is_serving = False
        self._tls: TlsServers | None = None
        self._passed: list[PassedSocket] = []
        self._stopping = False

    # -- start --------------------------------------------------------------------------------

    def startService(self) -> None:
        """Start the broker; it serves requests once its data has been loaded."""
        super().startService()  # type: ignore[no-untyped-call]
        config = self._loaded.config
        self._log_data_dirs()
        for warning in self._loaded.warnings:
            log.warn("{warning}", warning=warning)
        limit = self._process.begin(self._hang_up)
        log.info(
            "starting plog {version} as broker {node_id} with a limit of {limit} open files",
            version=VERSION,
            node_id=config.node_id,
            limit=limit,
        )
        self._machine.files.descriptors.set_limit(
            limit, config.max_connections, config.plog_log_max_open_segments
        )
        self._check_max_connections()
        self._make_parts()
        self._supervision.starting()
        try:
            self._tls = self._make_tls()
            self._passed = match_sockets(self._process.passed_descriptors, config.bound_listeners())
            # Opened before the data is loaded, so that /ready responds while logs are recovered.
            self._http = self._listen_http()
            bound = self._bind_listeners()
        except (_CannotOpen, CannotListenError, ConfigError, SocketUnusable) as error:
            self._cannot_start(error)
            return
        spawn(self._start(bound)).then(lambda _: None, self._cannot_start)

    async def _start(self, bound: Sequence[BoundListener]) -> None:
        opened, host_name = [each.opened for each in bound], ""
        if not self._loaded.config.has_embedded_store:
            host_name = await find_host_name(self._detached_jobs, _OUTSIDE_MAX_S)
        await self.broker.start(opened, host_name)
        self._serve(bound)

    def _log_data_dirs(self) -> None:
        config = self._loaded.config
        where = ", ".join(os.path.abspath(path) for path in config.data_dirs)
        if config.log_dirs is not None:
            log.info("data directories: {where}", where=where)
        elif config.state_directory is not None:
            text = "data directory: {where} (from $STATE_DIRECTORY, because log.dirs is not set)"
            log.info(text, where=where)
        else:
            log.info("data directory: {where} (log.dirs is not set)", where=where)

    def _check_max_connections(self) -> None:
        """Warn if the operator expects more connections than the limit on open files allows."""
        config, descriptors = self._loaded.config, self._machine.files.descriptors
        if "max.connections" not in config.explicit:
            # By default, only the descriptors limit connections.
            return
        if config.max_connections > descriptors.max_clients:
            log.warn(
                "max.connections={wanted} exceeds the {possible} connections that the limit of "
                "{limit} open files allows; raise LimitNOFILE or ulimit -n, or lower "
                "max.connections",
                wanted=config.max_connections,
                possible=descriptors.max_clients,
                limit=descriptors.limit,
            )

    def _make_parts(self) -> None:
        config, machine = self._loaded.config, self._machine
        self._jobs = machine.make_jobs()
        self._detached_jobs = DetachedJobs(self._reactor)
        ports = machine.make_ports(self._jobs, _report)
        self.broker = self._make_broker(config, ports)
        self.broker.on_must_stop = self._must_stop
        self.broker.on_config = self._use
        self.broker.logs = self._observer
        self.broker.log_manager.dirs.remedy = self._process.remedies.remedy
        self._connections = Connections(
            machine.dispatch_of(self.broker),
            config,
            ports,
            descriptors=machine.files.descriptors,
        )
        # Set afterward, because the connections need the broker's dispatcher.
        self.broker.copy_memory = self._connections.memory
        self._supervision = Supervision(
            self._process.notifier,
            self.broker,
            self._connections,
            clock=self._clock,
            timers=self.broker.timers,
        )
        register_connection_gauges(self._registry, self._connections)
        self._advertised = AdvertisedCheck(config, self._connections, resolve=self._resolve)
        self.broker.on_address_advertised = self._advertised.record_advertised
        self.broker.on_client_works = self._advertised.record_work

    def _make_broker(self, config: BrokerConfig, ports: Ports) -> Broker:
        if config.has_embedded_store:
            return Broker(config, ports, metrics=self._registry, on_bug=_log_bug)
        # A single broker does not need these modules.
        from plogd.cluster_broker import ClusterBroker
        from plogd.metadata.zookeeper.zookeeper_metadata import ZooKeeperMetadata

        return ClusterBroker(
            config,
            ports,
            metrics=self._registry,
            on_bug=_log_bug,
            make_metadata=partial(ZooKeeperMetadata, self._machine.make_zookeeper),
            make_peers=self._machine.make_peers,
        )

    def _resolve(self, host: str) -> Later[object]:
        # A resolver can hang, and a shutdown does not wait for these jobs.
        return self._detached_jobs.run(
            f"looking up {host}", lambda: socket.getaddrinfo(host, None), _OUTSIDE_MAX_S
        )

    def _make_tls(self) -> TlsServers | None:
        if not self._loaded.config.tls_listeners():
            return None
        from plogd.net.tls.tls_reload import TlsServers, prepare_tls

        prepared = prepare_tls(self._loaded.config, self._clock.now_ms())
        for warning in prepared.warnings:
            log.warn("{warning}", warning=warning)
        return TlsServers(prepared)

    def _listen_http(self) -> IListeningPort | None:
        if self._loaded.config.plog_http_port == 0:
            return None
        from plogd.http import site  # The import takes a tenth of the startup time.

        pages = site.make_site(
            self._machine.timers,
            self._reactor.seconds,
            metrics=self._registry.lines,
            checks=Checks(self.broker, lambda: self._is_serving and not self._stopping),
        )
        try:
            return site.listen(self._reactor, self._loaded.config, pages)
        except CannotListenError as error:
            # Formatted here, because the error does not contain the name of the setting.
            raise _CannotOpen(listen_problem(error, "plog.http.port")) from error

    def _bind_listeners(self) -> list[BoundListener]:
        tls = self._tls.by_listener if self._tls is not None else None
        self._listeners = Listeners(self._reactor, self._connections, tls, self._passed)
        return self._listeners.bind(self._loaded.config.bound_listeners())

    def _serve(self, bound: Sequence[BoundListener]) -> None:
        """Accept clients and notify the service manager, once the data has been loaded."""
        # A shutdown may have begun while the data was being loaded.
        if self._stopping:
            return
        config = self._loaded.config
        assert self._listeners is not None
        try:
            self._listeners.listen()
        except CannotListenError as error:
            self._cannot_start(error)
            return
        self._is_serving = True
        addresses = ",".join(map(str, bound))
        self._tasks = start_tasks(
            BROKER_TASKS,
            Running(
                broker=self.broker,
                connections=self._connections,
                supervision=self._supervision,
            ),
            config=config,
            reactor=self._reactor,
            registry=self._registry,
        )
        self.broker.log_manager.cleaner.start()
        # Only now, because the objects that exist at this point are never collected.
        self._process.serving()
        log.info("listening on {addresses}", addresses=addresses)
        self._advertised.start()
        self._supervision.serving(addresses)

    def _cannot_start(self, error: Exception) -> None:
        # A shutdown makes the loading fail, so this error is expected.
        if self._stopping:
            return
        if isinstance(error, CannotListenError):
            error = _CannotOpen(listen_problem(error, "listeners"))
        if isinstance(error, PlogError | OSError):
            log.critical("cannot start: {error}", error=str(error))
        else:
            _log_bug("start", error)
        self._supervision.failed(f"cannot start: {error}")
        # After a restart, the broker would receive the same sockets, so systemd should not restart
        # it.
        self._end_process(2 if isinstance(error, SocketUnusable) else 1)

    def _must_stop(self, why: str) -> None:
        log.critical("stopping: {why}", why=why)
        # Before the process ends, so that `systemctl status` shows the reason.
        self._supervision.failed(why)
        self._end_process()

    def _end_process(self, exit_code: int = 1) -> None:
        self.exit_code = exit_code
        if not self._stopping:
            # Not immediately, because the reactor may not be running yet.
            self._reactor.callLater(0, self._reactor.stop)

    # -- reload -------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        # A signal handler may interrupt any code, so it only wakes the reactor.
        self._reactor.callFromThread(self.reload)

    def reload(self) -> None:
        """Read the settings again and apply those that may change while the broker runs.

        New connections get the certificates that the files contain now. If the new certificates are
        invalid, the old certificates and their settings are kept, and all other settings are
        applied. Nothing changes if the files cannot be read in time, for example because a file
        system hangs.
        """
        # sd_notify(3): READY=1 must follow, so every path ends in `_reloaded` unless the broker
        # stops.
        self._process.notifier.reloading(self._clock.monotonic_ms())
        # Not in `_jobs`, for which a shutdown waits, because a file system may hang.
        read = self._detached_jobs.run("reading the settings", self._load, _OUTSIDE_MAX_S)
        read.then(self._loaded_again, self._not_loaded)

    def _not_loaded(self, error: Exception) -> None:
        if self._stopping:
            return
        if isinstance(error, ConfigError):
            for problem in error.problems:
                log.error("cannot reload the settings: {problem}", problem=problem)
            for warning in error.warnings:
                log.warn("{warning}", warning=warning)
        elif isinstance(error, OSError):
            log.error("cannot reload the settings: {error}", error=error.strerror or str(error))
        else:
            _log_bug("reload", error)
        self._reloaded()

    def _loaded_again(self, loaded: LoadedConfig) -> None:
        if self._stopping:
            return
        reload = reloadable(self._loaded.config, loaded.config)
        if self._tls is None:
            self._apply(loaded, reload)
        else:
            self._reload_tls(self._tls, loaded, reload)

    def _reload_tls(self, tls: TlsServers, loaded: LoadedConfig, reload: Reload) -> None:
        # `_make_tls` has loaded this module. A running broker must not load modules, because a
        # package upgrade may have replaced their files.
        from plogd.net.tls.tls_reload import prepare_tls

        def prepared(new: PreparedTls) -> None:
            if self._stopping:
                return
            for warning in new.warnings:
                log.warn("{warning}", warning=warning)
            tls.use(new)
            self._apply(loaded, reload)

        def failed(error: Exception) -> None:
            if self._stopping:
                return
            if not isinstance(error, ConfigError | OSError):
                _log_bug("reloading the certificates", error)
            text = error.strerror if isinstance(error, OSError) else None
            problem = "; ".join((text or str(error)).splitlines())
            log.error("cannot reload the certificates: {problem}", problem=problem)
            self._apply(loaded, without_tls(reload, self._loaded.config))

        now_ms = self._clock.now_ms()
        prepare = self._detached_jobs.run(
            "reading the certificates", lambda: prepare_tls(reload.config, now_ms), _OUTSIDE_MAX_S
        )
        prepare.then(prepared, failed)

    def _reloaded(self) -> None:
        # During startup, READY would tell systemd too early that the startup is complete.
        if self._is_serving:
            self._supervision.ready()

    def _apply(self, loaded: LoadedConfig, reload: Reload) -> None:
        for warning in loaded.warnings:
            log.warn("{warning}", warning=warning)
        self._loaded = LoadedConfig(
            config=reload.config, warnings=loaded.warnings, sources=loaded.sources
        )
        # Logged under the old or the new log level, so that the line is visible under either.
        log_first = self._observer is not None and self._observer.writes("info")
        if log_first:
            self._log_reload(reload)
        self.broker.update_config(reload.config)
        if not log_first:
            self._log_reload(reload)
        self._reloaded()

    def _log_reload(self, reload: Reload) -> None:
        log.info(
            "reloaded the settings: changed {applied}; a restart is required for: {pending}",
            applied=", ".join(reload.applied) or "nothing",
            pending=", ".join(reload.needs_restart) or "none",
        )
        covered = [name for name in reload.applied if name in self.broker.config.dynamic.names]
        if covered:
            log.info(
                "settings that clients have set still override the files: {names}",
                names=", ".join(covered),
            )

    def _use(self, config: BrokerConfig) -> None:
        """Apply settings that a reload or a client has changed."""
        self._connections.apply_settings(config)
        # Only if the setting changes: a client may have set another level temporarily (loggers.py).
        if self._observer is not None and config.plog_log_level != self._log_level:
            self._log_level = config.plog_log_level
            self._observer.set_level(self._log_level)

    # -- stop ---------------------------------------------------------------------------------

    def stopService(self) -> Deferred[None]:
        """Complete the requests in progress, make all data durable, and stop the broker."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._stopping = True
        self._process.stopping()
        self._supervision.stopping()
        stopped = Deferred.fromCoroutine(self._stop())
        stopped.addErrback(_log_failure, "cannot stop cleanly")
        return stopped

    async def _stop(self) -> None:
        log.info("stopping")
        # First of all, close the listeners: a client that connects from now on to a socket from
        # systemd stays in the socket's queue until the next broker serves it.
        if self._listeners is not None:
            await self._listeners.close()
        if self._http is not None:
            await maybeDeferred(self._http.stopListening)
        abort = self._reactor.callLater(_RESPONSES_MAX_MS / 1000, self._connections.abort_all)
        await as_deferred(self._connections.close_all())
        if abort.active():
            abort.cancel()
        if self._listeners is not None:
            self._listeners.release()
        if self._tasks is not None:
            # Before the logs are closed, because tasks use them.
            await self._tasks.stop()
        await as_deferred(self.broker.stop())
        self._detached_jobs.close()
        # Last, because closing the logs requires jobs.
        self._jobs.close()
        self._supervision.ended()
        log.info("stopped")


class _CannotOpen(PlogError):
    """An address cannot be opened; the message contains the address, the cause and the remedy."""


def as_deferred(later: Later[Any]) -> Deferred[Any]:
    """Return a Deferred with the outcome of `later`, for the shell to wait on."""
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
