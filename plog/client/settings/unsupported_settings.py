"""Settings of Kafka's clients that plog does not support but that users' files may contain.

`why_without_effect` returns the reason for each name. The tables list all of these settings, so
that a typo can be distinguished from a setting of the Java clients. Source: Kafka 4.3
ProducerConfig, ConsumerConfig, AdminClientConfig.
"""

from __future__ import annotations

from collections.abc import Mapping

from plog.client.settings.security import CONVERT_KEYSTORE
from plog.pem_settings import CONVERT_TRUSTSTORE

_JAVA = "it names a Java class"
_JAVA_STORE = "it configures a Java keystore, but only PEM is supported"

# Ignoring one of these settings could change the records written or read, or weaken security.
REFUSED: Mapping[str, str] = {
    "config.providers": "Java classes cannot look up values; specify the values directly",
    "group.remote.assignor": "it requires group.protocol=consumer, which is not supported",
    "interceptor.classes": f"{_JAVA}; pass Python objects, interceptors=[…]",
    "ssl.certfile": "put the key and the certificate in one PEM file and set ssl.keystore.location",
    "ssl.certificate.location": (
        "put the key and the certificate in one PEM file and set ssl.keystore.location"
    ),
    "ssl.engine.factory.class": f"{_JAVA}; set the certificates with ssl.keystore.… and"
    " ssl.truststore.…",
    "ssl.key.location": (
        "put the key and the certificate in one PEM file and set ssl.keystore.location"
    ),
    "ssl.keyfile": "put the key and the certificate in one PEM file and set ssl.keystore.location",
    "ssl.keystore.password": f"{_JAVA_STORE}; {CONVERT_KEYSTORE}",
    "ssl.truststore.password": f"{_JAVA_STORE}; {CONVERT_TRUSTSTORE}",
    "transaction.two.phase.commit.enable": "two-phase commit is not supported",
}

_CALL = "pass a Python function,"
_REASONS: Mapping[str, str] = {
    "auto.include.jmx.reporter": "JMX is not supported; metrics() returns the metrics",
    "client.dns.lookup": "the client tries every address of a host, as with use_all_dns_ips",
    "enable.metrics.push": "metrics are not pushed to brokers",
    "key.deserializer": f"{_JAVA}; {_CALL} key_deserializer=…",
    "key.serializer": f"{_JAVA}; {_CALL} key_serializer=…",
    "metric.reporters": f"{_JAVA}; metrics() returns the metrics",
    "metrics.num.samples": "metrics() returns current values without sampling",
    "metrics.recording.level": "metrics() returns all metrics",
    "metrics.sample.window.ms": "metrics() returns current values without sampling",
    "sasl.client.callback.handler.class": f"{_JAVA}; {_CALL} sasl_oauthbearer_token=…",
    "sasl.login.callback.handler.class": f"{_JAVA}; {_CALL} sasl_oauthbearer_token=…",
    "sasl.login.class": _JAVA,
    "security.providers": _JAVA,
    "ssl.keymanager.algorithm": "it selects a Java component",
    "ssl.protocol": "ssl.enabled.protocols sets the TLS versions",
    "ssl.provider": "it selects a Java component",
    "ssl.secure.random.implementation": "it selects a Java component",
    "ssl.trustmanager.algorithm": "it selects a Java component",
    "value.deserializer": f"{_JAVA}; {_CALL} value_deserializer=…",
    "value.serializer": f"{_JAVA}; {_CALL} value_serializer=…",
}

# A settings file may serve several kinds of clients, so it may contain settings of the others.
_ONLY_PRODUCERS = """
acks
batch.size
buffer.memory
compression.gzip.level
compression.lz4.level
compression.type
compression.zstd.level
delivery.timeout.ms
enable.idempotence
linger.ms
max.block.ms
max.in.flight.requests.per.connection
max.request.size
metadata.max.idle.ms
partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms
partitioner.class
partitioner.ignore.keys
plog.audit.enable
plog.audit.producer
transaction.timeout.ms
transactional.id
"""

_ONLY_CONSUMERS = """
allow.auto.create.topics
auto.commit.interval.ms
auto.offset.reset
check.crcs
client.rack
coordination
enable.auto.commit
exclude.internal.topics
fetch.max.bytes
fetch.max.wait.ms
fetch.min.bytes
group.id
group.instance.id
group.protocol
heartbeat.interval.ms
isolation.level
max.partition.fetch.bytes
max.poll.interval.ms
max.poll.records
partition.assignment.strategy
session.timeout.ms
zookeeper.connect
zookeeper.connection.timeout.ms
zookeeper.session.timeout.ms
zookeeper.ssl.cipher.suites
zookeeper.ssl.client.enable
zookeeper.ssl.crl.enable
zookeeper.ssl.enabled.protocols
zookeeper.ssl.endpoint.identification.algorithm
zookeeper.ssl.keystore.location
zookeeper.ssl.keystore.password
zookeeper.ssl.keystore.type
zookeeper.ssl.ocsp.enable
zookeeper.ssl.truststore.location
zookeeper.ssl.truststore.type
"""

_ONLY_ADMINS = """
bootstrap.controllers
"""

# Settings of Kafka's clients that have no effect in plog and do not need an individual reason.
_UNUSED = """
client.metadata
sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin
sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor
sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds
sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms
sasl.login.retry.backoff.ms
sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub
sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer
sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.retriever.class
sasl.oauthbearer.jwt.validator.class
sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name
sasl.oauthbearer.sub.claim.name
share.acknowledgement.mode
share.acquire.mode
"""

ONLY_PRODUCERS = frozenset(_ONLY_PRODUCERS.split())
ONLY_CONSUMERS = frozenset(_ONLY_CONSUMERS.split())
ONLY_ADMINS = frozenset(_ONLY_ADMINS.split())
UNUSED = frozenset(_UNUSED.split())

# Values, in lower case, that match plog's behavior and do not need a warning.
MATCHING_VALUES: Mapping[str, str] = {
    "auto.include.jmx.reporter": "false",
    "client.dns.lookup": "use_all_dns_ips",
    "enable.metrics.push": "false",
    "ssl.protocol": "tlsv1.3",
}

# Names with these prefixes are meant for other programs, such as serializers; in files, they do not
# need a warning.
FOREIGN_PREFIXES = ("config.providers.", "metrics.context.", "schema.registry.", "basic.auth.")


def why_without_effect(name: str) -> str | None:
    """Return why a name that a client's table lacks has no effect, or None for an unknown name.

    >>> why_without_effect("key.serializer")
    'it names a Java class; pass a Python function, key_serializer=…'
    """
    # An individual reason is more specific than the kind of client, so check it first.
    if name in _REASONS:
        return _REASONS[name]
    if name in ONLY_PRODUCERS:
        return "it is a producer setting"
    if name in ONLY_CONSUMERS:
        return "it is a consumer setting"
    if name in ONLY_ADMINS:
        return "it is an admin client setting"
    return "it is a Kafka setting that plog does not use" if name in UNUSED else None
