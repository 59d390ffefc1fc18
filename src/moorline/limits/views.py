"""Views that are pushed to whoever looks, and what a node remembers of its last minutes."""

from moorline.limits.topics import FILTER_LENGTH_MAX
from moorline.limits.wire import FRAME_BYTES_MAX

FIGURES_STEP_MS = 2_000
"""Between two steps of what a node remembers of its rates and times: a plot moves as one that is alive."""

FIGURES_STEPS_MAX = 300
"""Steps that it remembers: ten minutes."""

FIGURES_SERIES_MAX = 16
"""Series of a node's figures: there are six, of 7 KiB together, and room for those of later versions."""

FIGURES_LATELY_STEPS = 8
"""Steps over which a share of the commits is taken: fewer would show each commit alone."""

VIEW_CHARACTERS_MAX = 2 * FILTER_LENGTH_MAX + 256
"""Of the name of a view: a call for a list, with the longest filter and the longest topic that a page begins
behind."""

VIEW_BYTES_MAX = FRAME_BYTES_MAX
"""Of a view as it is pushed. A longer one ends with TOO_LARGE."""

VIEWS_PER_SESSION_MAX = 256
"""Views that one page has at once: two of each of a hundred nodes, and what it looks at."""

VIEWS_PER_PRINCIPAL_MAX = 384
"""Different views that one principal has in all of its windows: as one page has, and half as many again. The
others of a node are for others."""

VIEWS_MAX = 1_024
"""Views of a node that somebody looks at: each is computed for itself."""

VIEW_PUSH_MS_MIN = 200
"""Between two looks of a node at one view, however fast it changes: an eye sees no more."""

VIEW_REST_TIMES = 10
"""A view rests so many times as long as its last look took: one that is hard to find costs a tenth of a
processor at most, whoever watches."""

VIEW_REST_MS_MAX = 10_000
"""But not longer: a look may have waited for somebody else."""

VIEW_NODES_MS = 2_000
"""Between two looks at the nodes of the cluster, as long as somebody watches them."""

VIEW_GROUP_MS = 1_000
"""The same of a group, which a node that leads it also looks at when something moves."""

SILENT_SHOWN_MS = 10_000
"""In steps of this a view tells since when somebody was silent: more often is no news."""

VIEW_SERVICE_MS = 5_000
"""The same of a service, whose digest is computed from all its associations; when it compares, at once."""

VIEW_LIST_MS = 1_000
"""The same of a page of a list. A run that tells of itself, and a service that comes, goes or compares, is
seen at once."""
