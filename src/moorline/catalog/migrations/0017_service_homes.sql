-- The queues of a service are in parts: one for each home that has some of them, each with digests of its own, which only
-- the node of that home changes. Four zero bytes are no home: rows from before there were parts whose home nobody can
-- say yet. The node that has such a queue takes it into its part.
alter table moorline.association add column home bytea not null default decode('00000000', 'hex')
    check (octet_length(home) = 4);

-- Who is subscribed: every takeover counts on, and what an older one asks for is refused, at whatever node.
alter table moorline.service add column epoch bigint not null default 1;

drop index moorline.association_by_hash;

-- As a node looks for a queue that is not its own: an exception, or the end of the id. Where there is one home only, all
-- are its own.
update moorline.association a set home = found.home
from (
    select known.queue, coalesce(e.home, h.number, alone.number) as home
    from moorline.association known
    left join moorline.home_exception e on e.queue = known.queue
    left join moorline.home h on h.number = substring(known.queue from 21)
    left join (select min(encode(number, 'hex')) as hex from moorline.home having count(*) = 1) one on true
    left join lateral (select decode(one.hex, 'hex') as number) alone on true
) found
where found.queue = a.queue and found.home is not null;

create index association_by_hash on moorline.association (service, home, hash_high) include (hash_low, queue);

alter table moorline.service_bucket drop constraint service_bucket_pkey;
alter table moorline.service_bucket add column home bytea not null default decode('00000000', 'hex')
    check (octet_length(home) = 4);
delete from moorline.service_bucket;
insert into moorline.service_bucket (service, home, bucket, count, hash_high, hash_low)
select a.service, a.home, ((a.hash_high >> 56) & 255)::smallint, count(*), bit_xor(a.hash_high), bit_xor(a.hash_low)
from moorline.association a group by 1, 2, 3;
alter table moorline.service_bucket add primary key (service, home, bucket);

-- The homes at which a service has queues. It goes from home to home over the index, and reads nothing in between.
create function moorline.service_homes(service_number integer) returns setof bytea language sql stable as $$
    with recursive there as (
        (select a.home from moorline.association a where a.service = service_number order by a.home limit 1)
        union all
        select (
            select a.home from moorline.association a
            where a.service = service_number and a.home > t.home order by a.home limit 1
        ) from there t where t.home is not null
    )
    select t.home from there t where t.home is not null
$$;

-- Adds to the buckets of a part, in the order of the buckets, so that two at once cannot wait for each other.
create function moorline.change_buckets(
    service_number integer, given_home bytea, highs bigint[], lows bigint[], sign integer
) returns void language sql as $$
    insert into moorline.service_bucket as kept (service, home, bucket, count, hash_high, hash_low)
    select service_number, given_home, ((high >> 56) & 255)::smallint, sign * count(*), bit_xor(high), bit_xor(low)
    from unnest(highs, lows) as given (high, low)
    group by 3
    order by 3
    on conflict (service, home, bucket) do update set
        count = kept.count + excluded.count,
        hash_high = kept.hash_high # excluded.hash_high,
        hash_low = kept.hash_low # excluded.hash_low
$$;

-- Whether a service is still at that epoch, and stays so until the transaction ends. Epoch 0 is nobody's: an operator's.
create function moorline.is_at_epoch(service_number integer, given_epoch bigint) returns boolean language plpgsql as $$
begin
    if given_epoch = 0 then
        return true;
    end if;
    perform from moorline.service s where s.number = service_number and s.epoch = given_epoch for share;
    return found;
end $$;

-- Whether a process is still the one that it took itself for, and stays so until the transaction ends. It then has its home.
create function moorline.is_still(given_node bytea, given_incarnation bytea) returns boolean language plpgsql as $$
begin
    if given_node is null then
        return true;
    end if;
    perform from moorline.node n where n.id = given_node and n.incarnation = given_incarnation for key share;
    return found;
end $$;

-- Associates queues with the part of a service at a home; those of another service or part move. Returns the high hashes of
-- what is new to the part, or null if the service or the process has been taken over.
create function moorline.associate(
    service_number integer, given_home bytea, given_epoch bigint, given_node bytea, given_incarnation bytea,
    queues bytea[], highs bigint[], lows bigint[]
) returns bigint[] language plpgsql as $$
declare
    added record;
    moved record;
    changed bigint[] := '{}';
begin
    if not moorline.is_still(given_node, given_incarnation) then
        return null;
    end if;
    -- Where queues move: all services that take part, in order. Two that take from each other must not wait for
    -- each other; one that only adds waits for nobody.
    if exists (
        select from moorline.association a
        where a.queue = any (queues) and (a.service <> service_number or a.home <> given_home)
    ) then
        perform from moorline.service s
        where s.number = service_number
           or s.number in (select a.service from moorline.association a where a.queue = any (queues))
        order by s.number for no key update;
    end if;
    if not moorline.is_at_epoch(service_number, given_epoch) then
        return null;
    end if;
    -- Rows that are there already and of another part; locked in order.
    for moved in
        select a.service as old, a.home as old_home, array_agg(a.hash_high) as highs, array_agg(a.hash_low) as lows,
               array_agg(a.queue) as queues
        from (
            select * from moorline.association
            where queue = any (queues) and (service <> service_number or home <> given_home)
            order by queue for update
        ) a
        group by a.service, a.home order by a.service, a.home
    loop
        update moorline.association set service = service_number, home = given_home where queue = any (moved.queues);
        perform moorline.change_buckets(moved.old, moved.old_home, moved.highs, moved.lows, -1);
        perform moorline.change_buckets(service_number, given_home, moved.highs, moved.lows, 1);
        changed := changed || moved.highs;
    end loop;
    with inserted as (
        insert into moorline.association (queue, service, home, hash_high, hash_low)
        select distinct on (queue) queue, service_number, given_home, high, low
        from unnest(queues, highs, lows) as given (queue, high, low)
        order by queue
        on conflict (queue) do nothing
        returning hash_high, hash_low
    )
    select array_agg(hash_high) as highs, array_agg(hash_low) as lows, count(*) as count
    into added from inserted;
    if added.count > 0 then
        perform moorline.change_buckets(service_number, given_home, added.highs, added.lows, 1);
        changed := changed || added.highs;
    end if;
    return changed;
end $$;

-- What a node of the version before calls, while a cluster is upgraded node by node.
create or replace function moorline.associate(service_number integer, queues bytea[], highs bigint[], lows bigint[])
returns bigint[] language plpgsql as $$
declare
    part record;
    changed bigint[] := '{}';
begin
    for part in
        select coalesce(a.home, e.home, h.number, decode('00000000', 'hex')) as home, array_agg(given.queue) as queues,
               array_agg(given.high) as highs, array_agg(given.low) as lows
        from unnest(queues, highs, lows) as given (queue, high, low)
        left join moorline.association a on a.queue = given.queue
        left join moorline.home_exception e on e.queue = given.queue
        left join moorline.home h on h.number = substring(given.queue from 21)
        group by 1 order by 1
    loop
        changed := changed || moorline.associate(
            service_number, part.home, 0, null, null, part.queues, part.highs, part.lows
        );
    end loop;
    return changed;
end $$;

-- Removes associations, whosever they are; for a queue that is deleted, blocked, or subscribed to by a plain client.
create or replace function moorline.dissociate(queues bytea[])
returns table (service integer, highs bigint[]) language plpgsql as $$
declare
    gone record;
begin
    for gone in
        with removed as (
            delete from moorline.association a
            where a.queue in (
                select l.queue from moorline.association l where l.queue = any (queues) order by l.queue for update
            )
            returning a.service, a.home, a.hash_high, a.hash_low
        )
        select r.service as number, r.home, array_agg(r.hash_high) as highs, array_agg(r.hash_low) as lows
        from removed r group by r.service, r.home order by r.service, r.home
    loop
        perform moorline.change_buckets(gone.number, gone.home, gone.highs, gone.lows, -1);
        service := gone.number;
        highs := gone.highs;
        return next;
    end loop;
end $$;

-- The same of one part, for the service itself; null if the service or the process has been taken over.
create function moorline.dissociate_from(
    service_number integer, given_home bytea, given_epoch bigint, given_node bytea, given_incarnation bytea,
    queues bytea[]
) returns bigint[] language plpgsql as $$
declare
    ours bytea[];
begin
    if not moorline.is_still(given_node, given_incarnation) or not moorline.is_at_epoch(service_number, given_epoch) then
        return null;
    end if;
    ours := array(
        select a.queue from moorline.association a
        where a.queue = any (queues) and a.service = service_number and a.home = given_home
        order by a.queue for update
    );
    return array(select unnest(gone.highs) from moorline.dissociate(ours) gone);
end $$;

-- The buckets of one part as they should be, put in place of those that are kept; also where nothing is left.
create function moorline.recompute(service_number integer, given_home bytea)
returns void language plpgsql as $$
begin
    -- Excludes changes, and another recompute.
    lock table moorline.association in share row exclusive mode;
    delete from moorline.service_bucket b where b.service = service_number and b.home = given_home;
    insert into moorline.service_bucket (service, home, bucket, count, hash_high, hash_low)
    select service_number, given_home, ((a.hash_high >> 56) & 255)::smallint, count(*), bit_xor(a.hash_high),
           bit_xor(a.hash_low)
    from moorline.association a where a.service = service_number and a.home = given_home
    group by 3;
end $$;

-- Of all parts.
create or replace function moorline.recompute(service_number integer)
returns void language plpgsql as $$
declare
    part record;
begin
    -- Before it is read which parts there are.
    lock table moorline.association in share row exclusive mode;
    for part in
        select b.home from moorline.service_bucket b where b.service = service_number
        union select a.home from moorline.association a where a.service = service_number
    loop
        perform moorline.recompute(service_number, part.home);
    end loop;
end $$;

drop function moorline.change_buckets(integer, bigint[], bigint[], integer);
