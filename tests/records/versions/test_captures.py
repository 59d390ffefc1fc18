"""What `tests/records` shows of captures, on every other version of Postgres that this machine has.

The tests are those of the embedded version; the server under them is another one (`conftest.py`).
"""

# ruff: noqa: F401, F403
from tests.records.test_capture import *
from tests.records.test_capture import pytestmark
