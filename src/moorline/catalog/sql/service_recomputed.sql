-- What the digest should be, by reading every association.
select count(*) as count, coalesce(bit_xor(hash_high), 0) as high, coalesce(bit_xor(hash_low), 0) as low
from moorline.association where service = $1
