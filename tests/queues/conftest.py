"""The certificates of the tests of services are those of the tests of queues."""

from tests.services.conftest import papers as papers
