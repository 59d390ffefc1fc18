-- Who put the row there: an update leaves that as it is. It is the column with the index, and an update that changes none
-- that has one writes to no index at all ("heap only"). From the future it may be set to 0, as moor_xid.
if tg_op operator(pg_catalog.=) 'INSERT' then
    new.moor_made := pg_catalog.pg_current_xact_id();
elsif new.moor_made operator(pg_catalog.<>) old.moor_made and not (
    new.moor_made operator(pg_catalog.=) '0'
    and old.moor_made operator(pg_catalog.>=) pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())
    and old.moor_made operator(pg_catalog.<>) pg_catalog.pg_current_xact_id()
) then
    new.moor_made := old.moor_made;
end if;
