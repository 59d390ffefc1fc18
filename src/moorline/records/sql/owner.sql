-- The owner of a row is a column of its parent, kept here as a column of its own: then a move of the parent is a change
-- of each child. Who writes a child and who moves its parent wait for each other by one of a few locks, so that no
-- child is left with the owner of before; children do not wait for children, nor for other changes of the parent.
alter table {table} add column moor_owner {owner_type};

create function moorline_records.owner_{n}() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $moorline$
begin
    perform pg_advisory_xact_lock_shared({lock_class}, (hashtextextended({child_text}, 0) & 63)::integer);
    new.moor_owner := (select parent.{owner_column} from {parent} parent where {new_matches});
    return new;
end
$moorline$;
revoke all on function moorline_records.owner_{n}() from public;

create function moorline_records.moved_{n}() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $moorline$
begin
    perform pg_advisory_xact_lock({lock_class}, (hashtextextended({parent_text}, 0) & 63)::integer);
    update {table} child set moor_owner = new.{owner_column}
    where {child_matches} and child.moor_owner is distinct from new.{owner_column};
    return null;
end
$moorline$;
revoke all on function moorline_records.moved_{n}() from public;

-- The parent's trigger before the values are taken over, or a move in between would be lost.
create trigger zzz_moorline_moved_{n} after update on {parent}
for each row when (old.{owner_column} is distinct from new.{owner_column})
execute function moorline_records.moved_{n}();
alter table {parent} enable always trigger zzz_moorline_moved_{n};

update {table} child set moor_owner = parent.{owner_column} from {parent} parent where {fill_matches};

-- Always true; it names the columns, which therefore stay.
create trigger zzz_moorline_owner before insert or update on {table}
for each row when (true or {named_columns}) execute function moorline_records.owner_{n}();
alter table {table} enable always trigger zzz_moorline_owner;
