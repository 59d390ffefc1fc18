-- The queues of a service whose stored hashes are in a range.
select queue from moorline.association
where service = $1 and hash_high between $2 and $3
