"""The admin client's engine: all operations, as coroutines over a `Cluster`.

    admin = AdminCore(cluster)
    await admin.create_topic("page-views", partitions=3)
    for name, topic in (await admin.describe_topics()).raise_first().items(): ...

Each family of operations has its own module, such as topics.py or configs.py. The engine does not
import a reactor or threads, so it can also run on blocking sockets. A program that needs only one
family can use its class directly to start faster: families share only the cluster.
"""

from __future__ import annotations

from plog.client.admin.acls import AclAdmin
from plog.client.admin.brokers import BrokerAdmin
from plog.client.admin.configs import ConfigAdmin
from plog.client.admin.group_offsets import GroupOffsetAdmin
from plog.client.admin.groups import GroupAdmin
from plog.client.admin.log_dirs import LogDirAdmin
from plog.client.admin.partitions import PartitionAdmin
from plog.client.admin.quotas import QuotaAdmin
from plog.client.admin.records import RecordAdmin
from plog.client.admin.scram_credentials import CredentialAdmin
from plog.client.admin.topic_descriptions import TopicDescriptionAdmin
from plog.client.admin.topics import TopicAdmin


class AdminCore(
    TopicAdmin,
    TopicDescriptionAdmin,
    ConfigAdmin,
    RecordAdmin,
    GroupAdmin,
    GroupOffsetAdmin,
    BrokerAdmin,
    LogDirAdmin,
    PartitionAdmin,
    AclAdmin,
    QuotaAdmin,
    CredentialAdmin,
):
    """The operations of Kafka's admin client, except operations on the KRaft quorum.

    An operation on many items returns `Results` and raises only errors that apply to the whole
    request. An operation on a single item raises its error. After a retriable error, the client
    retries for up to ``default.api.timeout.ms``. An operation that times out may still have taken
    effect.
    """
