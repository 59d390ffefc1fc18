-- Held to the end: it claims nothing while it is removed.
select name, seen_at > clock_timestamp() - $2::bigint * interval '1 millisecond' as is_alive
from moorline.node where home = $1 for update
