-- A page of a service's queues behind that high hash, in the order of the hashes.
select hash_high, queue from moorline.association
where service = $1 and (hash_high, queue) > ($2, $3) order by hash_high, queue limit $4
