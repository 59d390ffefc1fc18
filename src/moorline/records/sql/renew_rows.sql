-- Rows whose transaction is still to come get none. The stamp lets that pass, and nothing else.
update {leaf} set {column} = '0'
where ctid = any (array(
    select ctid from {leaf}
    where {column} <> '0' and {column} >= pg_snapshot_xmax(pg_current_snapshot())
    limit {rows_max}
));
