-- Roles and addresses come when the node serves; until then nobody calls it.
insert into moorline.node as known
    (id, home, name, incarnation, lock, lease_until, roles, addresses, version, started_at, seen_at)
values ($1, $2, $3, $4, $5, clock_timestamp() + $6::bigint * interval '1 millisecond', '{}', '{}', '',
        clock_timestamp(), '-infinity')
on conflict (id) do update set
    name = excluded.name,
    incarnation = excluded.incarnation,
    lock = excluded.lock,
    lease_until = excluded.lease_until,
    started_at = excluded.started_at
