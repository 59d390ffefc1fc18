select u.name, u.is_disabled, u.hash is not null as has_password,
       (extract(epoch from u.created_at) * 1000000)::bigint as created_us,
       (select coalesce(array_agg(m.name order by m.name), '{}') from moorline.access_member m where m.member = u.name)
           as groups,
       (select coalesce(array_agg(t.label order by t.label), '{}') from moorline.access_token t where t.owner = u.name)
           as tokens
from moorline.access_user u
where u.name collate "C" > $1
order by u.name collate "C"
limit $2
