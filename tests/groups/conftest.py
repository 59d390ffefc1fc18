"""A real node for the tests of this folder (tests/topics/real_node.py)."""

from tests.topics.real_node import connect as connect
from tests.topics.real_node import moor as moor
from tests.topics.real_node import name as name
from tests.topics.real_node import node as node
from tests.topics.real_node import query as query
