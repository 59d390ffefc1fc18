-- Rows whose stored hash is not that of their id get the right one.
update moorline.association a set hash_high = given.high, hash_low = given.low
from unnest($2::bytea[], $3::bigint[], $4::bigint[]) as given (queue, high, low)
where a.service = $1 and a.queue = given.queue
