-- Another epoch: no snapshot and no cursor from before says anything.
update moorline_records.registration r
set
    relation = {relation},
    parent = {parent},
    cluster = {cluster},
    epoch = gen_random_uuid(),
    cleared_below = pg_snapshot_xmax(pg_current_snapshot()),
    pruned_below = '0',
    pruned_at = null
where r.n = {n};
