"""Names that are no settings of our clients and that users have in their files all the same.

Data, and the question what such a name means. Those of Kafka's clients are here in full, so that
a typing error can be told from a name of Java's world.
Source: Kafka 4.3 ProducerConfig, ConsumerConfig, AdminClientConfig.
"""

from __future__ import annotations

from collections.abc import Mapping

from plog.client.settings.security import CONVERT_KEYSTORE
from plog.pem_settings import CONVERT_TRUSTSTORE

_JAVA = "it names a Java class"
_JAVA_STORE = "it is for a Java keystore, and only PEM is read"

# Ignoring these would change what is written, read, or open to others.
REFUSED: Mapping[str, str] = {
    "config.providers": "values cannot be looked up by Java classes: give them as they are",
    "group.remote.assignor": "it is for group.protocol=consumer, which plog does not speak",
    "interceptor.classes": f"{_JAVA}: give Python objects, interceptors=[…]",
    "ssl.certfile": "put key and certificate into one PEM file and set ssl.keystore.location",
    "ssl.certificate.location": (
        "put key and certificate into one PEM file and set ssl.keystore.location"
    ),
    "ssl.engine.factory.class": f"{_JAVA}: set the certificates with ssl.keystore.… and"
    " ssl.truststore.…",
    "ssl.key.location": "put key and certificate into one PEM file and set ssl.keystore.location",
    "ssl.keyfile": "put key and certificate into one PEM file and set ssl.keystore.location",
    "ssl.keystore.password": f"{_JAVA_STORE}; {CONVERT_KEYSTORE}",
    "ssl.truststore.password": f"{_JAVA_STORE}; {CONVERT_TRUSTSTORE}",
    "transaction.two.phase.commit.enable": "this client's transactions know no two-phase commit",
}

_CALL = "give a Python function,"
_REASONS: Mapping[str, str] = {
    "auto.include.jmx.reporter": "there is no JMX; metrics() has the figures",
    "client.dns.lookup": "every address of a name is tried, as with use_all_dns_ips",
    "enable.metrics.push": "metrics are not pushed to brokers",
    "key.deserializer": f"{_JAVA}; {_CALL} key_deserializer=…",
    "key.serializer": f"{_JAVA}; {_CALL} key_serializer=…",
    "metric.reporters": f"{_JAVA}; metrics() has the figures",
    "metrics.num.samples": "metrics() has the figures as they are",
    "metrics.recording.level": "metrics() has all figures",
    "metrics.sample.window.ms": "metrics() has the figures as they are",
    "sasl.client.callback.handler.class": f"{_JAVA}; {_CALL} sasl_oauthbearer_token=…",
    "sasl.login.callback.handler.class": f"{_JAVA}; {_CALL} sasl_oauthbearer_token=…",
    "sasl.login.class": _JAVA,
    "security.providers": _JAVA,
    "ssl.keymanager.algorithm": "it chooses a part of Java",
    "ssl.protocol": "the versions of TLS are those of ssl.enabled.protocols",
    "ssl.provider": "it chooses a part of Java",
    "ssl.secure.random.implementation": "it chooses a part of Java",
    "ssl.trustmanager.algorithm": "it chooses a part of Java",
    "value.deserializer": f"{_JAVA}; {_CALL} value_deserializer=…",
    "value.serializer": f"{_JAVA}; {_CALL} value_serializer=…",
}

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
transaction.timeout.ms
transactional.id
"""

_ONLY_CONSUMERS = """
allow.auto.create.topics
auto.commit.interval.ms
auto.offset.reset
check.crcs
client.rack
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
"""

_ONLY_ADMINS = """
bootstrap.controllers
"""

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

# Values that ask for what is done anyway, in lower case: nothing to warn of.
AS_IT_IS: Mapping[str, str] = {
    "auto.include.jmx.reporter": "false",
    "client.dns.lookup": "use_all_dns_ips",
    "enable.metrics.push": "false",
    "ssl.protocol": "tlsv1.3",
}

# What files hold for other programs, serializers and the like: nothing to warn of.
PREFIXES_OF_OTHERS = ("config.providers.", "metrics.context.", "schema.registry.", "basic.auth.")


def why_without_effect(name: str) -> str | None:
    """Why a name that is not in a client's table has no effect there; None if nobody knows it.

    >>> why_without_effect("key.serializer")
    'it names a Java class; give a Python function, key_serializer=…'
    """
    if name in _REASONS:
        return _REASONS[name]
    if name in ONLY_PRODUCERS:
        return "it is a setting of producers"
    if name in ONLY_CONSUMERS:
        return "it is a setting of consumers"
    if name in ONLY_ADMINS:
        return "it is a setting of admin clients"
    return "it is known to Kafka and not used by plog" if name in UNUSED else None
