"""The Twisted face's `Admin`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plog.client.admin import AdminCore
from plog.client.faces.method_adapters import (
    deferred,
)
from plog.client.faces.twisted.base import Client
from plog.client.settings import AdminSettings
from plog.client.settings.settings_loader import Servers


class Admin(Client):
    """A client that manages topics, configs, groups and brokers.

        admin = Admin(bootstrap_servers="localhost:9092")
        admin.create_topic("page-views", partitions=3).addCallback(print)

    Raises ConfigError for invalid settings.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: Servers = None,
        reactor: Any = None,
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        made = AdminSettings.from_options(config, bootstrap_servers=bootstrap_servers, **settings)
        super().__init__(made, reactor)
        self._core = AdminCore(self._cluster)

    alter_client_quotas = deferred(AdminCore.alter_client_quotas)
    alter_config = deferred(AdminCore.alter_config)
    alter_configs = deferred(AdminCore.alter_configs)
    alter_group_offsets = deferred(AdminCore.alter_group_offsets)
    alter_partition_reassignments = deferred(AdminCore.alter_partition_reassignments)
    alter_replica_log_dirs = deferred(AdminCore.alter_replica_log_dirs)
    alter_user_scram_credentials = deferred(AdminCore.alter_user_scram_credentials)
    api_versions = deferred(AdminCore.api_versions)
    create_acls = deferred(AdminCore.create_acls)
    create_partitions = deferred(AdminCore.create_partitions)
    create_topic = deferred(AdminCore.create_topic)
    create_topics = deferred(AdminCore.create_topics)
    delete_acls = deferred(AdminCore.delete_acls)
    delete_group = deferred(AdminCore.delete_group)
    delete_group_offsets = deferred(AdminCore.delete_group_offsets)
    delete_groups = deferred(AdminCore.delete_groups)
    delete_records = deferred(AdminCore.delete_records)
    delete_topic = deferred(AdminCore.delete_topic)
    delete_topics = deferred(AdminCore.delete_topics)
    describe_acls = deferred(AdminCore.describe_acls)
    describe_client_quotas = deferred(AdminCore.describe_client_quotas)
    describe_cluster = deferred(AdminCore.describe_cluster)
    describe_config = deferred(AdminCore.describe_config)
    describe_configs = deferred(AdminCore.describe_configs)
    describe_features = deferred(AdminCore.describe_features)
    describe_group = deferred(AdminCore.describe_group)
    describe_groups = deferred(AdminCore.describe_groups)
    describe_log_dirs = deferred(AdminCore.describe_log_dirs)
    describe_producers = deferred(AdminCore.describe_producers)
    describe_topic = deferred(AdminCore.describe_topic)
    describe_topics = deferred(AdminCore.describe_topics)
    describe_user_scram_credentials = deferred(AdminCore.describe_user_scram_credentials)
    elect_leaders = deferred(AdminCore.elect_leaders)
    group_offsets = deferred(AdminCore.group_offsets)
    incremental_alter_configs = deferred(AdminCore.incremental_alter_configs)
    list_config_resources = deferred(AdminCore.list_config_resources)
    list_group_offsets = deferred(AdminCore.list_group_offsets)
    list_groups = deferred(AdminCore.list_groups)
    list_offsets = deferred(AdminCore.list_offsets)
    list_partition_reassignments = deferred(AdminCore.list_partition_reassignments)
    list_topics = deferred(AdminCore.list_topics)
    remove_members = deferred(AdminCore.remove_members)
    unregister_broker = deferred(AdminCore.unregister_broker)
    update_features = deferred(AdminCore.update_features)
