insert into moorline.access_owner (known_as, principal, version)
values ($1, $2, moorline.access_changed('owner', $1, '', false, $3))
on conflict (known_as) do update set principal = excluded.principal, version = excluded.version
