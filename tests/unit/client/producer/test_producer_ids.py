"""A producer ID is requested when first needed or when it must be replaced."""

from __future__ import annotations

from tests.unit.client.producer.producer_site import ready


def test_request_for_new_producer_id_leaves_current_one_in_use() -> None:
    site = ready()
    site.sent(b"v")
    site.flush()
    ids = site.core._sender._ids
    used = ids.identity.producer_id
    assert not ids.fit(past_producer_id=used)
    assert ids.fit(past_producer_id=-1)
    assert ids.identity.producer_id == used
    site.sim.run_until(lambda: ids.fit(past_producer_id=used))
