select path, subject, grants, denies, made_by,
       (extract(epoch from made_at) * 1000000)::bigint as made_us
from moorline.access_grant where path = $1 and subject = $2
