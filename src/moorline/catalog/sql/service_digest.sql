-- One read of the bucket rows: count and hash of everything that is associated in one part.
select coalesce(sum(count), 0)::bigint as count, coalesce(bit_xor(hash_high), 0) as high, coalesce(bit_xor(hash_low), 0) as low
from moorline.service_bucket where service = $1 and home = $2
