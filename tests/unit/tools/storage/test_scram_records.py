"""plogd/tools/storage/scram_records.py: users created before a broker's first start."""

from __future__ import annotations

import base64

import pytest

from plog.cli.options import UsageError
from plog.scram import ScramMechanism, salted_password, server_key, stored_key
from plogd.log.disk.checkpoint_files import MetaProperties, read_meta_properties
from plogd.tools.storage.format_command import AlreadyFormatted, format_dirs
from plogd.tools.storage.scram_records import scram_records
from tests.helpers.sim.sim_broker import LOG_DIR, SimBroker
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import settled

ALICE = "SCRAM-SHA-256=[name=alice,password=alice-secret]"
IDENTITY = MetaProperties(cluster_id="MkU3OEVBNTcwNTJENDM2Qg", node_id=1)


def _zeros(size: int) -> bytes:
    return bytes(size)


def test_password_becomes_credential_record() -> None:
    [record] = scram_records([ALICE], _zeros)
    salted = salted_password(
        ScramMechanism.SCRAM_SHA_256, b"alice-secret", salt=record.salt, iterations=4096
    )
    assert (record.name, record.mechanism, record.iterations) == ("alice", 1, 4096)
    assert record.stored_key == stored_key(ScramMechanism.SCRAM_SHA_256, salted)
    assert record.server_key == server_key(ScramMechanism.SCRAM_SHA_256, salted)
    assert len(record.salt) > 16
    assert "secret" not in repr(record)


def test_salted_password_keeps_its_salt() -> None:
    # The example in the help of Kafka's tool.
    text = 'SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]'
    [record] = scram_records([text], _zeros)
    assert (record.salt, record.iterations) == (base64.b64decode("N3E="), 8192)
    assert record.server_key == server_key(ScramMechanism.SCRAM_SHA_512, b"`!")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SCRAM-SHA-1=[name=a,password=b]", "start with SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("alice", "start with SCRAM-SHA-256"),
        ("SCRAM-SHA-256=name=a,password=b", "in brackets"),
        ("SCRAM-SHA-256=[password=secret]", "name is missing"),
        ("SCRAM-SHA-256=[name=,password=secret]", "user name is empty"),
        ("SCRAM-SHA-256=[name=a]", "either password or saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=secret,saltedpassword=YCE=]", "either password or"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YCE=]", "saltedpassword requires salt"),
        ("SCRAM-SHA-256=[name=a,salt=!,password=secret]", "salt is not valid base64"),
        ("SCRAM-SHA-256=[name=a,iterations=x,password=secret]", "not a whole number"),
        ("SCRAM-SHA-256=[name=a,iterations=9,password=secret]", "9 iterations are too few"),
        ("SCRAM-SHA-256=[name=a,iterations=99999999,password=secret]", "are too many"),
        ("SCRAM-SHA-256=[name=a,password=secret,x=y]", "the brackets must contain NAME=VALUE"),
        ("SCRAM-SHA-256=[name=\udcff,password=secret]", "UTF-8"),
    ],
)
def test_invalid_credential_is_reported_without_secrets(text: str, message: str) -> None:
    with pytest.raises(UsageError, match="--add-scram: ") as refused:
        scram_records([text], _zeros)
    assert message in refused.value.args[0]
    assert "secret" not in refused.value.args[0]


def test_duplicate_credential_is_rejected() -> None:
    with pytest.raises(UsageError, match="'alice' has two credentials"):
        scram_records([ALICE, ALICE], _zeros)


def test_broker_has_users_after_first_start() -> None:
    files = SimFiles(["/"])
    records = scram_records([ALICE, ALICE.replace("256", "512")], _zeros)
    lines = format_dirs(files, [LOG_DIR], IDENTITY, ignore_formatted=False, users=records)
    assert len(list(lines)) == 1
    sim = SimBroker(files=files)
    sim.start()
    assert sim.broker.cluster_id == IDENTITY.cluster_id
    described = settled(sim.ports, sim.broker.scram_users.describe([]))
    assert set(described["alice"]) == {1, 2}
    sim.stop()


def test_users_are_rejected_for_used_directory() -> None:
    files = SimFiles(["/"])
    records = scram_records([ALICE], _zeros)
    list(format_dirs(files, [LOG_DIR], IDENTITY, ignore_formatted=False))
    with pytest.raises(
        AlreadyFormatted, match=r"--add-scram: .* already formatted; .*plog configs"
    ):
        list(format_dirs(files, [LOG_DIR], IDENTITY, ignore_formatted=True, users=records))
    others = SimFiles(["/"])
    others.mkdir(f"{LOG_DIR}/__cluster_metadata-0")
    with pytest.raises(AlreadyFormatted, match="is already formatted"):
        list(format_dirs(others, [LOG_DIR], IDENTITY, ignore_formatted=False, users=records))
    assert read_meta_properties(others, LOG_DIR) is None
