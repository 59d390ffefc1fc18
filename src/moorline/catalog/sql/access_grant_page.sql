select path, subject, grants, denies, made_by,
       (extract(epoch from made_at) * 1000000)::bigint as made_us
from moorline.access_grant
where ($1 = '/' or path = $1 or starts_with(path, $1 || '/'))
  and ($2 = '' or subject = $2)
  and (path collate "C", subject collate "C") > ($3, $4)
order by path collate "C", subject collate "C"
limit $5
