-- The buckets $5 to $6 of a part of a service, whose high hashes are $3 to $4: what is kept of each, and its associations,
-- one behind the other in three buffers. One statement: all of it is of the same moment, whoever changes them meanwhile.
select bucket,
       coalesce(k.count, 0) as count, coalesce(k.hash_high, 0) as high, coalesce(k.hash_low, 0) as low,
       coalesce(a.queues, '') as queues, coalesce(a.lengths, '') as lengths, coalesce(a.hashes, '') as hashes
from (
    select bucket, count, hash_high, hash_low from moorline.service_bucket
    where service = $1 and home = $2 and (bucket between $5 and $6 or ($5 = 0 and bucket not between 0 and 255))
) k full join (
    select ((hash_high >> 56) & 255)::smallint as bucket, string_agg(queue, '') as queues,
           string_agg(int4send(octet_length(queue)), '') as lengths,
           string_agg(int8send(hash_high) || int8send(hash_low), '') as hashes
    from moorline.association where service = $1 and home = $2 and hash_high between $3 and $4 group by 1
) a using (bucket)
