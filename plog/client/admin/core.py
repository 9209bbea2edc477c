"""The admin client's engine: all families in one, as coroutines over a `Cluster`.

    admin = AdminCore(cluster)
    await admin.create_topic("page-views", partitions=3)
    for name, topic in (await admin.describe_topics()).raise_first().items(): ...

It imports neither a reactor nor threads, so that it runs on blocking sockets as well. Who needs one
family only, and a quick start, takes its class alone: they share nothing but the cluster.
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
    """Everything Kafka's admin client does that needs no KRaft quorum.

    A method about many things gives `Results`, and raises only for trouble of the whole; one about
    a single thing raises its error. Everything is tried again for ``default.api.timeout.ms`` where
    that may help, so a change may have been made although an error says that nobody answered.
    """
