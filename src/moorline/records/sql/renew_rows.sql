-- Rows whose transaction is still to come get none. The stamp lets that pass, and nothing else.
update {leaf} set moor_xid = '0'
where ctid = any (array(
    select ctid from {leaf}
    where moor_xid <> '0' and moor_xid >= pg_snapshot_xmax(pg_current_snapshot())
    limit {rows_max}
));
