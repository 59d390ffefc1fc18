insert into moorline.access_grant as kept (path, subject, grants, denies, made_by, version)
values ($1, $2, $3, $4, $5, moorline.access_changed('grant', $1, $2, false, $6))
on conflict (path, subject) do update set
    grants = excluded.grants,
    denies = excluded.denies,
    made_by = excluded.made_by,
    made_at = clock_timestamp(),
    version = excluded.version
