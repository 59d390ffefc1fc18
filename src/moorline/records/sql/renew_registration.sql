-- Another epoch: no snapshot and no cursor from before says anything.
update moorline_records.registration r
set
    relation = {relation},
    parent = {parent},
    cluster = {cluster},
    epoch = gen_random_uuid(),
    good_from = pg_snapshot_xmax(pg_current_snapshot())
where r.n = {n};
