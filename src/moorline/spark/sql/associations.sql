-- The queues of a service whose stored hashes are in a range, part by part as the index has them.
select a.queue
from moorline.service_homes($1) as part (home)
join moorline.association a on a.service = $1 and a.home = part.home and a.hash_high between $2 and $3
