"""Real clients against a real broker process."""

import pytest

# These helpers assert on behalf of tests, so pytest should explain their failures too.
pytest.register_assert_rewrite("tests.helpers.admin_scenarios", "tests.helpers.group_scenarios")
