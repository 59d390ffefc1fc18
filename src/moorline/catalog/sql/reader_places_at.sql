-- The places that these readers have in the shards of one node.
select reader, node, shard, offset_low as offset, acked, failures
from moorline.progress where node = $1 and reader = any($2::bigint[]) order by reader, shard
