insert into moorline.access_quota (subject, kind, amount, version)
values ($1, $2, $3, moorline.access_changed('quota', $1, $2, false, $4))
on conflict (subject, kind) do update set amount = excluded.amount, version = excluded.version
