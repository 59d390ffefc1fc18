select shard, max(offset_low) as offset
from moorline.progress where node = $1 group by shard order by shard
