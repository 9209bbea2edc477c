"""Settings of kafka-python, aiokafka and librdkafka, with their equivalents in plog.

A program or file written for one of these clients may contain the names below. For each name, plog
reports the equivalent, or why there is nothing to set. A name with the same meaning and unit as a
setting is not in this table; it is one of the setting's `aliases`. This module contains only data.
Source: kafka-python 3.0, aiokafka 0.14, librdkafka 2.12 CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


class OtherClientName(NamedTuple):
    """The advice for a name, and the values, in lower case, that match plog's behavior.

    Ignoring a ``refused`` name could change the records written or read, weaken security or hide a
    failure. A ``renamed`` name is handled like a misspelled setting. Ignoring an ``idle`` name is
    harmless.
    """

    advice: str
    kind: Literal["refused", "renamed", "idle"] = "idle"
    matching_values: tuple[str, ...] = ()


def _refused(advice: str, *matching_values: str) -> OtherClientName:
    return OtherClientName(advice, "refused", matching_values)


def _renamed(name: str, note: str = "") -> OtherClientName:
    return OtherClientName(f"use {name}{note}", "renamed")


def _idle(advice: str, *matching_values: str) -> OtherClientName:
    return OtherClientName(advice, "idle", matching_values)


_VERSIONS = _idle("the client negotiates versions with each broker")
_LOGGER = _idle("the logger is plog.client; DEBUG is its most verbose level")
_METRICS = _idle("metrics() returns the metrics")
_FETCH_AHEAD = _idle("fetch.max.bytes limits the records that are fetched ahead")
_OUTCOME = _refused("pass on_delivery=… to each send, or use the future that it returns")
_COMMIT_OUTCOME = _refused("pass a callback to commit_async; a blocking commit raises its error")
_PROXY = _refused("proxies are not supported; the client connects to brokers directly")
_NO_KERBEROS = _idle("Kerberos is not supported")
_NO_REVOCATION = _refused("certificate revocation lists are not supported")
_TOKEN = _refused("pass a function that returns the token, sasl_oauthbearer_token=…")
_TLS_SETTINGS = "ssl.truststore.location, ssl.keystore.location and the other ssl. settings"

# All names contain dots, even if the other client uses underscores: settings_loader.py replaces
# underscores before it looks up a name.
OTHER_CLIENTS: Mapping[str, OtherClientName] = {
    "api.version": _VERSIONS,
    "api.version.auto.timeout.ms": _VERSIONS,
    "api.version.fallback.ms": _VERSIONS,
    "api.version.request": _VERSIONS,
    "api.version.request.timeout.ms": _VERSIONS,
    "background.event.cb": _LOGGER,
    "batch.num.messages": _idle("batch.size limits a batch, in bytes"),
    "bootstrap.timeout.ms": _renamed("default.api.timeout.ms"),
    "broker.address.family": _idle("the client tries every address of a host", "any"),
    "broker.version.fallback": _VERSIONS,
    "compression.level": _renamed(
        "compression.gzip.level, compression.lz4.level or compression.zstd.level"
    ),
    "connections.max.idle": _renamed("connections.max.idle.ms"),
    "consumer.timeout.ms": _refused(
        "iterating over a consumer never ends; consume(timeout_s=…) returns an empty list when no"
        " records arrive in that time: `while records := consumer.consume(timeout_s=1):`",
        "-1",
        "inf",
    ),
    "debug": _LOGGER,
    "default.offset.commit.callback": _COMMIT_OUTCOME,
    "default.topic.config": _refused("set these settings together with the others", "{}"),
    "delivery.report.only.error": _OUTCOME._replace(matching_values=("false",)),
    "dr.cb": _OUTCOME,
    "dr.msg.cb": _OUTCOME,
    "enable.auto.offset.store": _refused(
        "records are considered consumed once they are returned; to control this yourself, set"
        " enable.auto.commit=false and call commit({partition: offset})",
        "true",
    ),
    "enable.incremental.fetch.sessions": _idle("fetch sessions are always used", "true"),
    "enable.partition.eof": _refused(
        "the end of a partition is not reported as a record; when it is reached, lag(partition)"
        " is 0",
        "false",
    ),
    "enable.ssl.certificate.verification": _refused(
        "certificates are always verified; set ssl.truststore.location to the CA certificates",
        "true",
    ),
    "error.cb": _idle("calls raise their errors; other errors are logged to plog.client"),
    "fetch.error.backoff.ms": _renamed("retry.backoff.ms"),
    "kafka.client": _idle("each client has its own connections"),
    "log.cb": _LOGGER,
    "log.level": _LOGGER,
    "log.queue": _LOGGER,
    "logger": _LOGGER,
    "loop": _idle("a plog.aio client belongs to the event loop in which it is first used"),
    "max.batch.size": _renamed("batch.size"),
    "message.max.bytes": _renamed("max.request.size"),
    "metric.group.prefix": _idle("metrics() returns the metrics", "consumer"),
    "metrics.enabled": _idle("metrics() returns the metrics", "true"),
    "oauth.cb": _TOKEN,
    "oauthbearer.token.refresh.cb": _TOKEN,
    "offset.commit.cb": _COMMIT_OUTCOME,
    "on.commit": _COMMIT_OUTCOME,
    "on.delivery": _OUTCOME,
    "partitioner": _refused(
        "pass it as a separate argument, partitioner=…, not in a mapping; the default is the same"
        " as in Kafka's clients (murmur2_random in librdkafka), and HashPartitioner() is"
        " librdkafka's murmur2",
        "murmur2_random",
    ),
    "proxy.url": _PROXY,
    "queue.buffering.max.kbytes": _renamed("buffer.memory", ", in bytes"),
    "queue.buffering.max.messages": _idle("buffer.memory limits buffered records, in bytes"),
    "queued.max.messages.kbytes": _FETCH_AHEAD,
    "queued.min.messages": _FETCH_AHEAD,
    "rebalance.timeout.ms": _renamed("max.poll.interval.ms"),
    "receive.message.max.bytes": _idle("fetch.max.bytes limits the size of responses"),
    "sasl.kerberos.domain.name": _NO_KERBEROS,
    "sasl.kerberos.name": _NO_KERBEROS,
    "sasl.oauth.token.provider": _TOKEN,
    "selector": _idle("it selects an internal class of kafka-python"),
    "socket.blocking.max.ms": _idle("sockets do not block"),
    "socket.keepalive.enable": _idle("TCP keepalive is always enabled", "true"),
    "socket.nagle.disable": _idle("Nagle's algorithm is always disabled", "true"),
    "socket.options": _idle("only send.buffer.bytes and receive.buffer.bytes can be set"),
    "socket.receive.buffer.bytes": _renamed("receive.buffer.bytes"),
    "socket.send.buffer.bytes": _renamed("send.buffer.bytes"),
    "socket.timeout.ms": _renamed("request.timeout.ms"),
    "socks5.proxy": _PROXY,
    "ssl.certificate.verify.cb": _refused(
        "certificates are verified against the CA certificates in ssl.truststore.location"
    ),
    "ssl.check.hostname": _refused(
        "set ssl.endpoint.identification.algorithm to an empty string to accept any certificate"
        " of a trusted CA",
        "true",
    ),
    "ssl.cipher.suites.tls13": _renamed("ssl.cipher.suites"),
    "ssl.ciphers": _renamed("ssl.cipher.suites", ", with their standard names"),
    "ssl.context": _refused(f"configure TLS with {_TLS_SETTINGS}"),
    "ssl.crl.location": _NO_REVOCATION,
    "ssl.crlfile": _NO_REVOCATION,
    "statistics.interval.ms": _idle("metrics() returns the metrics", "0"),
    "stats.cb": _METRICS,
    "sticky.partitioning.linger.ms": _idle("the partition changes after batch.size bytes"),
    "throttle.cb": _idle("metrics() returns how long brokers have throttled this client"),
    "topic.metadata.refresh.interval.ms": _renamed("metadata.max.age.ms"),
}
