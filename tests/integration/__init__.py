"""Real clients against a real broker process."""

import pytest

# Their asserts are a test's own, and should say as much.
pytest.register_assert_rewrite("tests.helpers.admin_scenarios", "tests.helpers.group_scenarios")
