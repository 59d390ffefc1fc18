-- Nothing is returned where another node with that name gave a sign of life within $7 milliseconds; else the id that the
-- name had before, which is what the statement's own snapshot sees.
insert into moorline.node as known (name, id, roles, addresses, http, version, started_at, seen_at)
values ($1, $2, $3, $4, $5, $6, now(), now())
on conflict (name) do update set
    id = excluded.id,
    roles = excluded.roles,
    addresses = excluded.addresses,
    http = excluded.http,
    version = excluded.version,
    started_at = excluded.started_at,
    seen_at = excluded.seen_at
where known.id = excluded.id or known.seen_at <= now() - $7::bigint * interval '1 millisecond'
returning coalesce((select earlier.id from moorline.node earlier where earlier.name = $1), $2) as id_before;
