-- The digest of a service: the sum of its parts.
select coalesce(sum(count), 0)::bigint as count, coalesce(bit_xor(hash_high), 0) as high, coalesce(bit_xor(hash_low), 0) as low
from moorline.service_bucket where service = $1
