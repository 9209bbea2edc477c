"""Real clients against a real broker process, with a package for each kind of client.

The tests here concern the repository: its examples, its compiled codec and its public surface.
kafka_comparison sends the same requests to Apache Kafka. The programs of other languages are in
go, java and node.
"""

import pytest

# These helpers assert on behalf of tests, so pytest should explain their failures too.
pytest.register_assert_rewrite(
    "tests.helpers.admin_scenarios", "tests.helpers.group.group_scenarios"
)
