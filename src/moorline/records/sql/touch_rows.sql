-- Rows that were last written by another transaction than the one of their stamp: by a write that met no trigger, or one
-- that changed nothing, or within a savepoint. Nobody can tell which; a new number makes sure.
update {leaf} set moor_seq = -1
where ctid = any (array(
    select ctid from {leaf}
    where
        xmin::text <> (moor_xid::text::numeric % 4294967296)::text
        and (moor_xid = '0' or moor_xid < '{upto}'::xid8)
        and moor_seq <= {seq_max}
    limit {rows_max}
));
