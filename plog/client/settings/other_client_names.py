"""Names of kafka-python's, aiokafka's and librdkafka's settings, and what they are here.

Data. Whoever comes from one of those clients has such names in a program or a file; each is
answered with what does the same, or with why there is nothing to set. Names that mean the same
here, in the same unit, are no rows of this table but `aliases` of a setting.
Source: kafka-python 3.0, aiokafka 0.14, librdkafka 2.12 CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


class OtherClientName(NamedTuple):
    """What to answer. `as_it_is` are the values, in lower case, that ask for what is done anyway.

    One that is ``refused`` would change what is written, read, or open to others, or hide a
    failure; ``elsewhere`` it is a misspelt name; ``idle`` it has no effect worth a refusal.
    """

    answer: str
    kind: Literal["refused", "elsewhere", "idle"] = "idle"
    as_it_is: tuple[str, ...] = ()


def _refused(answer: str, *as_it_is: str) -> OtherClientName:
    return OtherClientName(answer, "refused", as_it_is)


def _renamed(name: str, and_so: str = "") -> OtherClientName:
    return OtherClientName(f"here it is {name}{and_so}", "elsewhere")


def _idle(answer: str, *as_it_is: str) -> OtherClientName:
    return OtherClientName(answer, "idle", as_it_is)


_VERSIONS = _idle("versions are agreed on with each broker")
_LOGGER = _idle("the logger is plog.client, and DEBUG its most talkative level")
_FIGURES = _idle("metrics() has the figures")
_FETCH_AHEAD = _idle("fetch.max.bytes bounds what is fetched ahead")
_OUTCOME = _refused("give on_delivery=… with each send, or ask the future it returns")
_COMMIT_OUTCOME = _refused("give commit_async a callback; a commit that waits raises its error")
_PROXY = _refused("there are no proxies: brokers are connected to directly")
_NO_KERBEROS = _idle("Kerberos is not spoken by plog")
_NO_REVOCATION = _refused("lists of revoked certificates are not read")
_TOKEN = _refused("give a function that returns the token, sasl_oauthbearer_token=…")
_BY_TLS = "ssl.truststore.location, ssl.keystore.location and the others of ssl."

OTHER_CLIENTS: Mapping[str, OtherClientName] = {
    "api.version": _VERSIONS,
    "api.version.auto.timeout.ms": _VERSIONS,
    "api.version.fallback.ms": _VERSIONS,
    "api.version.request": _VERSIONS,
    "api.version.request.timeout.ms": _VERSIONS,
    "background.event.cb": _LOGGER,
    "batch.num.messages": _idle("batch.size bounds a batch, in bytes"),
    "bootstrap.timeout.ms": _renamed("default.api.timeout.ms"),
    "broker.address.family": _idle("every address of a name is tried", "any"),
    "broker.version.fallback": _VERSIONS,
    "compression.level": _renamed(
        "compression.gzip.level, compression.lz4.level or compression.zstd.level"
    ),
    "connections.max.idle": _renamed("connections.max.idle.ms"),
    "consumer.timeout.ms": _refused(
        "an iteration does not end by itself; consume(timeout_s=…) returns an empty list when"
        " nothing has come for so long: `while records := consumer.consume(timeout_s=1):`",
        "-1",
        "inf",
    ),
    "debug": _LOGGER,
    "default.offset.commit.callback": _COMMIT_OUTCOME,
    "default.topic.config": _refused("write its settings beside the others", "{}"),
    "delivery.report.only.error": _OUTCOME._replace(as_it_is=("false",)),
    "dr.cb": _OUTCOME,
    "dr.msg.cb": _OUTCOME,
    "enable.auto.offset.store": _refused(
        "what the application has been given counts as consumed; to say itself what is done, it"
        " sets enable.auto.commit=false and calls commit({partition: offset})",
        "true",
    ),
    "enable.incremental.fetch.sessions": _idle("fetch sessions are always used", "true"),
    "enable.partition.eof": _refused(
        "no record stands for the end of a partition; lag(partition) is 0 there", "false"
    ),
    "enable.ssl.certificate.verification": _refused(
        "certificates are always verified: name the CA's in ssl.truststore.location", "true"
    ),
    "error.cb": _idle("calls raise their errors, and the logger plog.client has the others"),
    "fetch.error.backoff.ms": _renamed("retry.backoff.ms"),
    "kafka.client": _idle("each client has connections of its own"),
    "log.cb": _LOGGER,
    "log.level": _LOGGER,
    "log.queue": _LOGGER,
    "logger": _LOGGER,
    "loop": _idle("a client of plog.aio belongs to the loop in which it is first used"),
    "max.batch.size": _renamed("batch.size"),
    "message.max.bytes": _renamed("max.request.size"),
    "metric.group.prefix": _idle("metrics() has the figures", "consumer"),
    "metrics.enabled": _idle("metrics() has the figures", "true"),
    "oauth.cb": _TOKEN,
    "oauthbearer.token.refresh.cb": _TOKEN,
    "offset.commit.cb": _COMMIT_OUTCOME,
    "on.commit": _COMMIT_OUTCOME,
    "on.delivery": _OUTCOME,
    "partitioner": _refused(
        "give it as an argument of its own, not in a mapping: partitioner=…; the default is that"
        " of Kafka's clients, librdkafka's murmur2_random, and HashPartitioner() is its murmur2",
        "murmur2_random",
    ),
    "proxy.url": _PROXY,
    "queue.buffering.max.kbytes": _renamed("buffer.memory", ", in bytes"),
    "queue.buffering.max.messages": _idle("buffer.memory bounds what waits, in bytes"),
    "queued.max.messages.kbytes": _FETCH_AHEAD,
    "queued.min.messages": _FETCH_AHEAD,
    "rebalance.timeout.ms": _renamed("max.poll.interval.ms"),
    "receive.message.max.bytes": _idle("fetch.max.bytes bounds what is asked for"),
    "sasl.kerberos.domain.name": _NO_KERBEROS,
    "sasl.kerberos.name": _NO_KERBEROS,
    "sasl.oauth.token.provider": _TOKEN,
    "selector": _idle("it chooses a part of kafka-python"),
    "socket.blocking.max.ms": _idle("nothing waits in a socket"),
    "socket.keepalive.enable": _idle("idle connections are kept alive", "true"),
    "socket.nagle.disable": _idle("nothing is delayed by Nagle's algorithm", "true"),
    "socket.options": _idle("send.buffer.bytes and receive.buffer.bytes are what can be chosen"),
    "socket.receive.buffer.bytes": _renamed("receive.buffer.bytes"),
    "socket.send.buffer.bytes": _renamed("send.buffer.bytes"),
    "socket.timeout.ms": _renamed("request.timeout.ms"),
    "socks5.proxy": _PROXY,
    "ssl.certificate.verify.cb": _refused(
        "certificates are verified by the CA's in ssl.truststore.location"
    ),
    "ssl.check.hostname": _refused(
        "ssl.endpoint.identification.algorithm, set to an empty text, lets any certificate of a"
        " trusted CA be the broker's",
        "true",
    ),
    "ssl.cipher.suites.tls13": _renamed("ssl.cipher.suites"),
    "ssl.ciphers": _renamed("ssl.cipher.suites", ", with their standard names"),
    "ssl.context": _refused(f"TLS is set by {_BY_TLS}"),
    "ssl.crl.location": _NO_REVOCATION,
    "ssl.crlfile": _NO_REVOCATION,
    "statistics.interval.ms": _idle("metrics() has the figures", "0"),
    "stats.cb": _FIGURES,
    "sticky.partitioning.linger.ms": _idle("the partition changes with each batch.size bytes"),
    "throttle.cb": _idle("metrics() has how long brokers made this client wait"),
    "topic.metadata.refresh.interval.ms": _renamed("metadata.max.age.ms"),
}
