-- Gives a row that is written its number and transaction. An update that changes nothing keeps both; one that asks
-- for a negative moor_seq gets new ones; a transaction number from the future (a restored dump) may be set to 0.
create function moorline_records.stamp_{n}() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $moorline$
begin
    if tg_op = 'UPDATE' and new.moor_seq >= 0 then
        new.moor_seq := old.moor_seq;
        -- A snapshot does not count our own transaction among those that have begun.
        if not (
            new.moor_xid = '0'
            and old.moor_xid >= pg_snapshot_xmax(pg_current_snapshot())
            and old.moor_xid <> pg_current_xact_id()
        ) then
            new.moor_xid := old.moor_xid;
        end if;
        if {is_same} then
            return new;
        end if;
    end if;
    new.moor_seq := nextval('moorline_records.seq_{n}');
    new.moor_xid := pg_current_xact_id();
    return new;
end
$moorline$;
revoke all on function moorline_records.stamp_{n}() from public;

create trigger zzz_moorline_stamp before insert or update on {table}
for each row execute function moorline_records.stamp_{n}();
-- Always: also for sessions that replicate (session_replication_role), whose writes are writes as well.
alter table {table} enable always trigger zzz_moorline_stamp;
