-- Count and hash of each range [first, last] of the high hash, in order.
select count(a.hash_high)::bigint as count, coalesce(bit_xor(a.hash_low), 0) as hash
from unnest($2::bigint[], $3::bigint[]) with ordinality as given (first, last, place)
left join moorline.association a
    on a.service = $1 and a.hash_high between given.first and given.last
group by place order by place
