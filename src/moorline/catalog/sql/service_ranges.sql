-- Count and hash of each range [first, last] of the high hash in a part, in order.
select count(a.hash_high)::bigint as count, coalesce(bit_xor(a.hash_low), 0) as hash
from unnest($3::bigint[], $4::bigint[]) with ordinality as given (first, last, place)
left join moorline.association a
    on a.service = $1 and a.home = $2 and a.hash_high between given.first and given.last
group by place order by place
