"""The certificates of the tests of services are those of the tests of queues."""

from tests.services.conftest import certificates as certificates
