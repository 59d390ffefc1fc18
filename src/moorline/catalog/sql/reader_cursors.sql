select node as home, shard, offset_low as offset, acked, failures
from moorline.progress where reader = $1 order by node, shard
