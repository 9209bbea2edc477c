"""The admin client's engine: all families of operations, as coroutines over a `Cluster`.

    admin = AdminCore(cluster)
    await admin.create_topic("page-views", partitions=3)
    for name, topic in (await admin.describe_topics()).raise_first().items(): ...

Each family of operations has its own file, such as topics.py and configs.py.

It imports neither a reactor nor threads, so it also runs on blocking sockets. A program that needs
only one family and a quick start can use the class of that family: families share only the cluster.
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
    """The operations of Kafka's admin client, except those on the KRaft quorum.

    An operation on many items returns `Results` and raises only errors that apply to the whole
    request; an operation on a single item raises its error. Operations are retried after retriable
    errors for ``default.api.timeout.ms``. A change may therefore have taken effect although the
    operation failed with a timeout.
    """
