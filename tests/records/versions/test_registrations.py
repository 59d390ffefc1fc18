"""What `tests/records` shows of registrations and the bound of the log, on every other version of Postgres
that this machine has."""

# ruff: noqa: F401, F403
from tests.records.test_notify import *
from tests.records.test_pruning import *
from tests.records.test_registration import *
from tests.records.test_registration import pytestmark
