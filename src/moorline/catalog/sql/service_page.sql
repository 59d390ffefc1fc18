-- A page of the queues of a part of a service behind that high hash, in the order of the hashes.
select hash_high, queue from moorline.association
where service = $1 and home = $2 and (hash_high, queue) > ($3, $4) order by hash_high, queue limit $5
