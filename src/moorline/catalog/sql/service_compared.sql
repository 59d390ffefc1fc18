-- Kept and true side by side, in one statement: both are of the same moment, whoever changes them meanwhile.
select bucket,
       coalesce(k.count, 0) as kept_count, coalesce(k.hash_high, 0) as kept_high,
       coalesce(k.hash_low, 0) as kept_low,
       coalesce(t.count, 0) as count, coalesce(t.hash_high, 0) as high, coalesce(t.hash_low, 0) as low
from (
    select bucket, count, hash_high, hash_low from moorline.service_bucket where service = $1
) k full join (
    select ((hash_high >> 56) & 255)::smallint as bucket, count(*) as count,
           bit_xor(hash_high) as hash_high, bit_xor(hash_low) as hash_low
    from moorline.association where service = $1 group by 1
) t using (bucket)
