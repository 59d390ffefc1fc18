select s.number, s.id, case when substring(s.fingerprint for 10) = 'principal:' then '' else s.fingerprint end as fingerprint,
       coalesce(s.principal, '') as principal, s.name, s.is_disabled, s.created_at,
       coalesce(b.count, 0)::bigint as count, coalesce(b.high, 0) as high, coalesce(b.low, 0) as low
from moorline.service s
left join (
    select service, sum(count) as count, bit_xor(hash_high) as high, bit_xor(hash_low) as low
    from moorline.service_bucket group by service
) b on b.service = s.number
order by s.name, s.number
