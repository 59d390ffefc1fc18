select t.owner, t.label, u.is_disabled, u.version, t.version as token_version,
       (extract(epoch from t.expires_at) * 1000000)::bigint as expires_us,
       t.expires_at <= clock_timestamp() as is_expired
from moorline.access_token t join moorline.access_user u on u.name = t.owner
where t.hash = $1
