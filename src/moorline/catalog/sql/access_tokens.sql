select hash, owner, label,
       (extract(epoch from expires_at) * 1000000)::bigint as expires_us
from moorline.access_token where version > $1
