"""Convert metadata records for ACLs, quotas and SCRAM users to values, and changes to records.

image.py calls both functions: `effect_of` returns the effect of a record on its key, and
`records_for` returns the records for a change. Source: Kafka 4.0 AclControlManager,
ClientQuotaControlManager, ScramControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plog.types import Uuid, uuid_from_text, uuid_to_text
from plog.wire.internal.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    MetadataRecord,
    QuotaEntityData,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from plogd.metadata.store import Change, Key
from plogd.quota import DEFAULT, entity_of, entity_of_key, quota_key
from plogd.security.acl import Acl, ResourcePattern
from plogd.security.scram import ScramCredential


def effect_of(record: MetadataRecord, value_of: Callable[[Key], Any]) -> tuple[Key, Any]:
    """Return the key that a record changes, and its new value or None to remove the key.

    Args:
        value_of: returns the current value of a key, or None.

    Raises ValueError for other records, and for the removal of a missing key.
    """
    match record:
        case AccessControlEntryRecord():
            return ("acl", uuid_to_text(record.id)), _acl_of(record)
        case RemoveAccessControlEntryRecord():
            return _removed(("acl", uuid_to_text(record.id)), value_of)
        case ClientQuotaRecord():
            return _quota_effect(record, value_of)
        case UserScramCredentialRecord():
            credential = ScramCredential(
                salt=record.salt,
                stored_key=record.stored_key,
                server_key=record.server_key,
                iterations=record.iterations,
            )
            return ("scram", record.name, record.mechanism), credential
        case RemoveUserScramCredentialRecord():
            return _removed(("scram", record.name, record.mechanism), value_of)
        case _:
            # Never skipped: an unknown record may be the removal of a rule.
            raise ValueError(f"unknown metadata record {type(record).__name__}")


def _removed(key: Key, value_of: Callable[[Key], Any]) -> tuple[Key, None]:
    if value_of(key) is None:
        raise ValueError(f"cannot remove {key[0]} {', '.join(map(str, key[1:]))}: it is missing")
    return key, None


def _acl_of(record: AccessControlEntryRecord) -> Acl:
    return Acl(
        pattern=ResourcePattern(
            resource_type=record.resource_type,
            name=record.resource_name,
            pattern_type=record.pattern_type,
        ),
        principal=record.principal,
        host=record.host,
        operation=record.operation,
        permission=record.permission_type,
    )


def _quota_effect(
    record: ClientQuotaRecord, value_of: Callable[[Key], Any]
) -> tuple[Key, Mapping[str, float] | None]:
    # In the record, null denotes the default entity.
    names = {part.entity_type: part.entity_name or DEFAULT for part in record.entity}
    key = quota_key(entity_of(names))
    quotas = dict(value_of(key) or {})
    if record.remove:
        quotas.pop(record.key, None)
    else:
        quotas[record.key] = record.value
    # Without quotas, the entity no longer exists, as in Kafka's ClientQuotasImage.
    return key, quotas or None


# -- records of a change ------------------------------------------------------------------------


def records_for(change: Change, old: Any) -> Sequence[MetadataRecord]:
    """Return the records that apply `change` to `old`. Raises ValueError for other keys."""
    match change.key:
        case ("acl", str(acl_id)):
            return _acl_records(uuid_from_text(acl_id), change.value, old)
        case ("client_quota", *_):
            return _quota_records(change.key, old or {}, change.value or {})
        case ("scram", str(user), int(mechanism)):
            return _scram_records(user, mechanism, change.value, old)
        case _:
            raise ValueError(f"cannot write {change.key}: the key is unknown or read-only")


def _acl_records(acl_id: Uuid, new: Acl | None, old: Acl | None) -> list[MetadataRecord]:
    # A change without effect must not add a record, because the log is never compacted.
    if new == old:
        return []
    if new is None:
        return [RemoveAccessControlEntryRecord(id=acl_id)]
    return [
        AccessControlEntryRecord(
            id=acl_id,
            resource_type=new.pattern.resource_type,
            resource_name=new.pattern.name,
            pattern_type=new.pattern.pattern_type,
            principal=new.principal,
            host=new.host,
            operation=new.operation,
            permission_type=new.permission,
        )
    ]


def _quota_records(
    key: Key, old: Mapping[str, float], new: Mapping[str, float]
) -> list[MetadataRecord]:
    # The default entity, whose name is empty in a key, has the name null in the record.
    entity = [
        QuotaEntityData(entity_type=kind, entity_name=name or None)
        for kind, name in entity_of_key(key).parts()
    ]
    # Kafka has no record for a whole entity, so each quota has its own. The names are sorted, so
    # that the same change always produces the same records.
    removed = [
        ClientQuotaRecord(entity=entity, key=name, remove=True)
        for name in sorted(old)
        if name not in new
    ]
    changed = [
        ClientQuotaRecord(entity=entity, key=name, value=value)
        for name, value in sorted(new.items())
        if old.get(name) != value
    ]
    return [*removed, *changed]


def _scram_records(
    user: str, mechanism: int, new: ScramCredential | None, old: ScramCredential | None
) -> list[MetadataRecord]:
    if new == old:
        return []
    if new is None:
        return [RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)]
    return [
        UserScramCredentialRecord(
            name=user,
            mechanism=mechanism,
            salt=new.salt,
            stored_key=new.stored_key,
            server_key=new.server_key,
            iterations=new.iterations,
        )
    ]
