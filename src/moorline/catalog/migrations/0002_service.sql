-- Services and the queues associated with them. A hash is the XXH3-128 of a queue's id as two signed halves.
create table moorline.service (
    number      integer generated always as identity primary key,
    id          bytea not null unique,
    fingerprint bytea not null unique,
    name        text not null,
    salt        bytea not null,
    is_disabled boolean not null default false,
    created_at  timestamptz not null default now()
);

-- A queue belongs to one service at most, hence its key.
create table moorline.association (
    queue     bytea primary key,
    service   integer not null references moorline.service on delete cascade,
    hash_high bigint not null,
    hash_low  bigint not null
);

-- Ranges of hash prefixes are ranges of this index, and need not touch the table.
create index association_by_hash on moorline.association (service, hash_high) include (hash_low, queue);

-- The digest of a service is kept in 256 rows, by the first byte of the hash: one row would be a hot one.
create table moorline.service_bucket (
    service   integer not null references moorline.service on delete cascade,
    bucket    smallint not null,
    count     bigint not null,
    hash_high bigint not null,
    hash_low  bigint not null,
    primary key (service, bucket)
);

-- Adds to the buckets of a service, in the order of the buckets, so that two at once cannot wait for each other.
-- XOR takes out what it puts in; the sign says what happens to the count.
create function moorline.change_buckets(service_number integer, highs bigint[], lows bigint[], sign integer)
returns void language sql as $$
    insert into moorline.service_bucket as kept (service, bucket, count, hash_high, hash_low)
    select service_number, ((high >> 56) & 255)::smallint, sign * count(*), bit_xor(high), bit_xor(low)
    from unnest(highs, lows) as given (high, low)
    group by 2
    order by 2
    on conflict (service, bucket) do update set
        count = kept.count + excluded.count,
        hash_high = kept.hash_high # excluded.hash_high,
        hash_low = kept.hash_low # excluded.hash_low
$$;

-- Associates queues with a service; those of another service move. Returns the high hashes of what is new to it.
create function moorline.associate(service_number integer, queues bytea[], highs bigint[], lows bigint[])
returns bigint[] language plpgsql as $$
declare
    added record;
    moved record;
    changed bigint[] := '{}';
begin
    -- Where queues move: all services that take part, in order. Two that take from each other must not wait for
    -- each other; one that only adds waits for nobody.
    if exists (
        select from moorline.association a where a.queue = any (queues) and a.service <> service_number
    ) then
        perform from moorline.service s
        where s.number = service_number
           or s.number in (select a.service from moorline.association a where a.queue = any (queues))
        order by s.number for no key update;
    end if;
    -- Rows that are there already and belong to another service; locked in order.
    for moved in
        select a.service as old, array_agg(a.hash_high) as highs, array_agg(a.hash_low) as lows,
               array_agg(a.queue) as queues
        from (
            select * from moorline.association
            where queue = any (queues) and service <> service_number
            order by queue for update
        ) a
        group by a.service order by a.service
    loop
        update moorline.association set service = service_number where queue = any (moved.queues);
        perform moorline.change_buckets(moved.old, moved.highs, moved.lows, -1);
        perform moorline.change_buckets(service_number, moved.highs, moved.lows, 1);
        changed := changed || moved.highs;
    end loop;
    with inserted as (
        insert into moorline.association (queue, service, hash_high, hash_low)
        select distinct on (queue) queue, service_number, high, low
        from unnest(queues, highs, lows) as given (queue, high, low)
        order by queue
        on conflict (queue) do nothing
        returning hash_high, hash_low
    )
    select array_agg(hash_high) as highs, array_agg(hash_low) as lows, count(*) as count
    into added from inserted;
    if added.count > 0 then
        perform moorline.change_buckets(service_number, added.highs, added.lows, 1);
        changed := changed || added.highs;
    end if;
    return changed;
end $$;

-- Removes associations, whosever they are; for a queue that is deleted, blocked, or subscribed to by a plain client.
create function moorline.dissociate(queues bytea[])
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
            returning a.service, a.hash_high, a.hash_low
        )
        select r.service as number, array_agg(r.hash_high) as highs, array_agg(r.hash_low) as lows
        from removed r group by r.service order by r.service
    loop
        perform moorline.change_buckets(gone.number, gone.highs, gone.lows, -1);
        service := gone.number;
        highs := gone.highs;
        return next;
    end loop;
end $$;

-- The buckets of a service as they should be, put in place of those that are kept; also where nothing is left.
create function moorline.recompute(service_number integer)
returns void language plpgsql as $$
begin
    -- Excludes changes, and another recompute.
    lock table moorline.association in share row exclusive mode;
    delete from moorline.service_bucket b where b.service = service_number;
    insert into moorline.service_bucket (service, bucket, count, hash_high, hash_low)
    select service_number, ((a.hash_high >> 56) & 255)::smallint, count(*), bit_xor(a.hash_high), bit_xor(a.hash_low)
    from moorline.association a where a.service = service_number
    group by 2;
end $$;
