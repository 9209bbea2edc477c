"""ACLs, quotas and SCRAM users: the records of a change replay to the same change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.types import uuid_to_text
from plog.wire.internal.metadata_records import (
    ClientQuotaRecord,
    QuotaEntityData,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from plogd.metadata.image import MetadataImage
from plogd.metadata.store import ABSENT, Change, Key
from plogd.quota import QuotaEntity, quota_key
from plogd.security.acl import Acl, ResourcePattern
from plogd.security.scram import ScramCredential

ACL_KEY: Key = ("acl", uuid_to_text(b"i" * 16))
TEXT = st.text(max_size=5)
SMALL = st.integers(-128, 127)
ACLS = st.builds(
    Acl,
    pattern=st.builds(ResourcePattern, resource_type=SMALL, name=TEXT, pattern_type=SMALL),
    principal=TEXT,
    host=TEXT,
    operation=SMALL,
    permission=SMALL,
)
CREDENTIALS = st.builds(
    ScramCredential,
    salt=st.binary(max_size=4),
    stored_key=st.binary(max_size=4),
    server_key=st.binary(max_size=4),
    iterations=st.integers(0, 9),
)
NAMES = st.sampled_from([None, "", "a"])
ENTITIES = st.builds(QuotaEntity, user=NAMES, client_id=NAMES, ip=NAMES)
QUOTAS = st.dictionaries(st.sampled_from("xyz"), st.floats(0.5, 9), min_size=1)


def write(image: MetadataImage, key: Key, value: Any) -> list[Any]:
    """Make a change by its records alone; return the records."""
    change = Change(key=key, value=value, expected=image.get(key)[1])
    records = list(image.records_for(change, {}))
    for record in records:
        assert image.replay(type(record).decode(record.encode(0), 0), 7) == [key]
    return records


def assert_changes_come_back(key: Key, *values: Any) -> None:
    image = MetadataImage()
    for value in (*values, None):
        write(image, key, value)
        assert image.get(key) == (value, ABSENT if value is None else 7)
        assert image.load(key[:1]) == ({} if value is None else {key: (value, 7)})
        assert write(image, key, value) == [], "an unchanged value needs no record"


@given(ACLS)
def test_acl_is_added_and_removed(acl: Acl) -> None:
    assert_changes_come_back(ACL_KEY, acl)


@given(ENTITIES, QUOTAS, QUOTAS)
def test_quotas_are_set_changed_and_removed(
    entity: QuotaEntity, first: dict[str, float], second: dict[str, float]
) -> None:
    assert_changes_come_back(quota_key(entity), first, second)


@given(CREDENTIALS, CREDENTIALS)
def test_credential_is_set_changed_and_removed(
    first: ScramCredential, second: ScramCredential
) -> None:
    assert_changes_come_back(("scram", "user", 1), first, second)


def test_quota_has_one_record_for_each_value_that_changes() -> None:
    image = MetadataImage()
    key = quota_key(QuotaEntity(user="", client_id="c"))
    write(image, key, {"a": 1.0, "b": 2.0, "c": 3.0})
    entity = [
        QuotaEntityData(entity_type="user", entity_name=None),
        QuotaEntityData(entity_type="client-id", entity_name="c"),
    ]
    assert write(image, key, {"a": 1.0, "b": 5.0}) == [
        ClientQuotaRecord(entity=entity, key="c", remove=True),
        ClientQuotaRecord(entity=entity, key="b", value=5.0),
    ]


@pytest.mark.parametrize(
    "record",
    [
        RemoveAccessControlEntryRecord(id=b"i" * 16),
        RemoveUserScramCredentialRecord(name="nobody", mechanism=1),
        ClientQuotaRecord(entity=[QuotaEntityData(entity_type="planet", entity_name="x")], key="k"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_record_that_does_not_fit_the_state_raises(record: Any) -> None:
    with pytest.raises(ValueError, match=r"it is missing|unknown entity type"):
        MetadataImage().replay(record, 0)


def test_mechanisms_of_one_user_are_independent() -> None:
    image = MetadataImage()
    for mechanism in (1, 2):
        image.replay(UserScramCredentialRecord(name="a", mechanism=mechanism, iterations=5), 1)
    image.replay(RemoveUserScramCredentialRecord(name="a", mechanism=1), 2)
    assert list(image.load(("scram", "a"))) == [("scram", "a", 2)]
