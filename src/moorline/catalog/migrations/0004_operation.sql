-- What operators ask of groups, and where a group begins in streams that it has no place in.

-- An operator's call, from when it is asked until it is answered. Whoever performs it takes the ticket in the
-- transaction of the effect; whoever asked withdraws it before it says that nothing was done. One of the two is first, so a
-- call that was answered as failed has no effect later, however long somebody slept over it. There is no key to the group:
-- the ticket of a call that removed it must still say so. `until` is by this clock and no other.
create table moorline.operation (
    ticket   bigint generated always as identity primary key,
    reader   bigint not null,
    work     text not null,
    asked_by text not null,
    asked_at text not null,
    until    timestamptz not null,
    is_done  boolean not null default false
);

-- Where a group begins in every shard that it has no place in: at `start_us`, or at this offset if that is earlier.
alter table moorline.shared_group add column start_offset bigint check (start_offset >= 0);

create or replace view moorline.group_state as
select r.number as reader, g.mode, g.name, g.filter, g.deliveries_max, g.start_us, r.epoch,
       case when r.lease_until > clock.now then r.holder else '' end as leader,
       case when r.lease_until > clock.now
           then ceil(extract(epoch from r.lease_until - clock.now) * 1000)::bigint else 0
       end as lease_left_ms,
       (extract(epoch from g.created_at) * 1000000)::bigint as created_us,
       g.start_offset
from moorline.shared_group g
join moorline.reader r on r.shared_group = g.number
cross join (select clock_timestamp() as now) as clock;

drop function moorline.declare_group(text, text, text, integer, bigint);

-- Makes a group with its reader, or finds it as it is.
create function moorline.declare_group(
    given_mode text, given_name text, given_filter text, given_deliveries_max integer, given_start_us bigint,
    given_start_offset bigint
) returns table (state moorline.group_state, is_created boolean) language plpgsql as $$
declare
    group_number bigint;
begin
    -- The update changes nothing. It holds the row, so that nobody removes the group before we have its reader.
    insert into moorline.shared_group (mode, name, filter, deliveries_max, start_us, start_offset)
    values (given_mode, given_name, given_filter, given_deliveries_max, given_start_us, given_start_offset)
    on conflict (mode, name, filter) do update set start_us = shared_group.start_us
    returning number into group_number;
    insert into moorline.reader (shared_group) values (group_number) on conflict (shared_group) do nothing;
    is_created := found;
    return query
    select s, is_created from moorline.group_state s
    join moorline.reader r on r.number = s.reader where r.shared_group = group_number;
end $$;

-- Writes down that an operator asks for something. Those that nobody has asked about for an hour are forgotten.
create function moorline.open_operation(
    given_reader bigint, given_work text, given_by text, given_at text, within_ms bigint
) returns bigint language sql as $$
    delete from moorline.operation where until < clock_timestamp() - interval '1 hour';
    insert into moorline.operation (reader, work, asked_by, asked_at, until)
    values (
        given_reader, given_work, given_by, given_at,
        clock_timestamp() + within_ms * interval '1 millisecond'
    )
    returning ticket;
$$;

-- Takes a ticket for a Leader of that epoch: TAKEN, or FENCED if another one leads, or TOO_LATE if it was withdrawn, taken
-- before, or is over. The row of the reader is held to the end, so that nobody claims the group before the effect is there.
create function moorline.take_operation(given_ticket bigint, given_reader bigint, given_epoch bigint)
returns text language plpgsql as $$
begin
    perform from moorline.reader r
    where r.number = given_reader and r.epoch = given_epoch and r.shared_group is not null for no key update;
    if not found then
        return 'FENCED';
    end if;
    update moorline.operation o set is_done = true
    where o.ticket = given_ticket and o.reader = given_reader and not o.is_done and o.until > clock_timestamp();
    return case when found then 'TAKEN' else 'TOO_LATE' end;
end $$;

-- Holds the row of a group before that of its reader: the order in which all lock them.
create function moorline.hold_group(given_reader bigint) returns bigint language sql as $$
    select g.number from moorline.shared_group g
    where g.number = (select r.shared_group from moorline.reader r where r.number = given_reader)
    for update;
$$;

-- Removes a group with its reader and its places.
create function moorline.delete_group(given_ticket bigint, given_reader bigint, given_epoch bigint)
returns text language plpgsql as $$
declare
    group_number bigint := moorline.hold_group(given_reader);
    outcome text := moorline.take_operation(given_ticket, given_reader, given_epoch);
begin
    if outcome = 'TAKEN' then
        delete from moorline.shared_group g where g.number = group_number;
    end if;
    return outcome;
end $$;

-- Moves a group: from here on it has these places and no others, and begins at the start wherever it has none. The epoch
-- rises, so that nothing that the Leader before has on its way moves it again; whoever asks first leads next.
create function moorline.seek_group(
    given_ticket bigint, given_reader bigint, given_epoch bigint, given_start_us bigint, given_start_offset bigint,
    nodes text[], shards integer[], offsets bigint[]
) returns text language plpgsql as $$
declare
    group_number bigint := moorline.hold_group(given_reader);
    outcome text := moorline.take_operation(given_ticket, given_reader, given_epoch);
begin
    if outcome = 'TAKEN' then
        update moorline.shared_group g set start_us = given_start_us, start_offset = given_start_offset
        where g.number = group_number;
        update moorline.reader r set epoch = nextval('moorline.epoch'), holder = null, lease_until = null
        where r.number = given_reader;
        delete from moorline.progress p where p.reader = given_reader;
        insert into moorline.progress (reader, node, shard, offset_low, acked, failures)
        select given_reader, place.node, place.shard, place.offset_low, '', ''
        from unnest(nodes, shards, offsets) as place (node, shard, offset_low);
    end if;
    return outcome;
end $$;

-- Changes the limits of a group.
create function moorline.change_group(
    given_ticket bigint, given_reader bigint, given_epoch bigint, given_deliveries_max integer
) returns text language plpgsql as $$
declare
    group_number bigint := moorline.hold_group(given_reader);
    outcome text := moorline.take_operation(given_ticket, given_reader, given_epoch);
begin
    if outcome = 'TAKEN' then
        update moorline.shared_group g set deliveries_max = given_deliveries_max where g.number = group_number;
    end if;
    return outcome;
end $$;
