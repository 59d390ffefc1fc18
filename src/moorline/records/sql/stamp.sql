-- Gives a row that is written its number and transaction. An update that changes nothing keeps both; one that asks
-- for a negative moor_seq gets new ones; a transaction number from the future (a restored dump) may be set to 0.
--
-- It runs as who registered the table, for every row that anybody writes. So every name in it is qualified, operators
-- too: that is as safe as a search_path of its own, which would be set and taken back for each row.
create function moorline_records.stamp_{n}() returns trigger
language plpgsql security definer as $moorline$
{declared}begin
    {stamp_made}
    if tg_op operator(pg_catalog.=) 'UPDATE' and new.moor_seq operator(pg_catalog.>=) 0 then
        new.moor_seq := old.moor_seq;
        -- A snapshot does not count our own transaction among those that have begun.
        if not (
            new.moor_xid operator(pg_catalog.=) '0'
            and old.moor_xid operator(pg_catalog.>=) pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())
            and old.moor_xid operator(pg_catalog.<>) pg_catalog.pg_current_xact_id()
        ) then
            new.moor_xid := old.moor_xid;
        end if;
        if {is_same} then
            return new;
        end if;
    end if;
    new.moor_seq := pg_catalog.nextval('moorline_records.seq_{n}'::pg_catalog.regclass);
    new.moor_xid := pg_catalog.pg_current_xact_id();
    {stamp_line}
    return new;
end
$moorline$;
revoke all on function moorline_records.stamp_{n}() from public;

create trigger zzz_moorline_stamp before insert or update on {table}
for each row execute function moorline_records.stamp_{n}();
-- Always: also for sessions that replicate (session_replication_role), whose writes are writes as well.
alter table {table} enable always trigger zzz_moorline_stamp;
