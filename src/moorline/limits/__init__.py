"""Room: limits. Every bound of the system, with its unit last in its name, and its reason.

A file for each subject; all of them are taken from here. docs/reference/limits.md is written from them.
"""

from moorline.limits.access import *
from moorline.limits.backup import *
from moorline.limits.capture import *
from moorline.limits.client import *
from moorline.limits.cluster import *
from moorline.limits.commands import *
from moorline.limits.groups import *
from moorline.limits.http import *
from moorline.limits.jobs import *
from moorline.limits.mqtt import *
from moorline.limits.node import *
from moorline.limits.queues import *
from moorline.limits.quotas import *
from moorline.limits.records import *
from moorline.limits.services import *
from moorline.limits.sessions import *
from moorline.limits.spark import *
from moorline.limits.staging import *
from moorline.limits.topics import *
from moorline.limits.units import *
from moorline.limits.values import *
from moorline.limits.views import *
from moorline.limits.wire import *
