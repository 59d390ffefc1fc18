-- Sends what changed in the writer's own transaction: key, and what the row was before. The number of the line is in
-- it, since Postgres sends equal texts of a transaction once. Texts are written alike whatever the writer has set.
create sequence moorline_records.log_n_{n};

create function moorline_records.notify_{n}() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO'
set timezone = 'UTC'
set extra_float_digits = 1
as $moorline$
declare
    line bigint := nextval('moorline_records.log_n_{n}');
    payload text;
    inserted json;
    is_other boolean := false;
begin
    -- What is read of the row by name: where a column was renamed the marker goes out, and no writer fails.
    begin
        if tg_op <> 'DELETE' then
            inserted := json_build_array({new_keys});
        end if;
        if tg_op = 'INSERT' then
            payload := json_build_array(line, pg_current_xact_id()::text, 'I', inserted)::text;
        else
            is_other := tg_op = 'DELETE' or not ({is_same_key});
            payload := json_build_array(
                line, pg_current_xact_id()::text, case when is_other then 'D' else 'U' end,
                json_build_array({old_keys}), old.moor_seq, old.moor_xid::text, json_build_array({old_scopes})
            )::text;
        end if;
    exception when others then
        payload := json_build_array(line, pg_current_xact_id()::text, 'R')::text;
        is_other := false;
    end;
    -- Postgres takes 7,999 bytes; what is longer would fail the writer.
    if octet_length(payload) > 7999 then
        payload := json_build_array(line, pg_current_xact_id()::text, 'R')::text;
    end if;
    perform pg_notify('moorline_records_{n}', payload);
    -- The new key of a row whose key changed is that of a new row.
    if tg_op = 'UPDATE' and is_other then
        payload := json_build_array(
            nextval('moorline_records.log_n_{n}'), pg_current_xact_id()::text, 'I', inserted
        )::text;
        perform pg_notify('moorline_records_{n}', payload);
    end if;
    return null;
end
$moorline$;
revoke all on function moorline_records.notify_{n}() from public;

create function moorline_records.truncate_{n}() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $moorline$
begin
    perform pg_notify(
        'moorline_records_{n}',
        json_build_array(nextval('moorline_records.log_n_{n}'), pg_current_xact_id()::text, 'T')::text
    );
    return null;
end
$moorline$;
revoke all on function moorline_records.truncate_{n}() from public;

create trigger zzz_moorline_notify after update on {table}
for each row when (old.moor_seq <> new.moor_seq or ({named_columns}))
execute function moorline_records.notify_{n}();
alter table {table} enable always trigger zzz_moorline_notify;

create trigger zzz_moorline_notify_delete after delete on {table}
for each row when (old.moor_seq is not null or ({named_columns}))
execute function moorline_records.notify_{n}();
alter table {table} enable always trigger zzz_moorline_notify_delete;

create trigger zzz_moorline_notify_insert after insert on {table}
for each row when (new.moor_seq is not null or ({named_new_columns}))
execute function moorline_records.notify_{n}();
alter table {table} enable always trigger zzz_moorline_notify_insert;
