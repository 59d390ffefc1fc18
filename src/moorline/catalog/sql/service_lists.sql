-- The high hashes in each range, as bytes in one piece.
select coalesce(string_agg(int8send(a.hash_high), '' order by a.hash_high), '') as highs
from unnest($3::bigint[], $4::bigint[]) with ordinality as given (first, last, place)
left join moorline.association a
    on a.service = $1 and a.home = $2 and a.hash_high between given.first and given.last
group by place order by place
