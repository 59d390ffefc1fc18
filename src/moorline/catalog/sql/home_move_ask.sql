-- A move that is under way stays, and so does one that brought the home where it is to go: asked for again it goes on, or is
-- done. With another target the caller refuses it.
insert into moorline.home_move as known (home, id, target, state)
values ($1, $2, $3, 'asked')
on conflict (home) do update set
    id = excluded.id, target = excluded.target, state = 'asked', problem = '', files = 0, bytes = 0, bytes_copied = 0,
    hash = '', incarnation = null, closed_at = null, opened_at = null, asked_at = clock_timestamp()
where known.state in ('failed', 'cancelled') or (known.state = 'done' and known.target <> excluded.target)
returning id
