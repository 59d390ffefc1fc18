-- The queues in each range that holds exactly one, or in the range that is everything.
select a.queue
from unnest($2::bigint[], $3::bigint[]) as given (first, last)
cross join lateral (
    select queue, count(*) over () as found from moorline.association
    where service = $1 and hash_high between given.first and given.last
) a
where a.found = 1
