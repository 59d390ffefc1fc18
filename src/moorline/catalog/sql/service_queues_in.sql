-- The queues in each range of a part that holds exactly one, or in the range that is everything.
select a.queue
from unnest($3::bigint[], $4::bigint[]) as given (first, last)
cross join lateral (
    select queue, count(*) over () as found from moorline.association
    where service = $1 and home = $2 and hash_high between given.first and given.last
) a
where a.found = 1
