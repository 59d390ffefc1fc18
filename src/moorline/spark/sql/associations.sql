-- The associations of a service whose hashes are in a range, with both halves of their hashes.
select queue, hash_high, hash_low from moorline.association
where service = $1 and hash_high between $2 and $3
