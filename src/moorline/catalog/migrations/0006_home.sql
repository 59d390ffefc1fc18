-- The id of a queue ends with the number of its home, and here is which node has that home now. A row is written when a
-- node first claims its identity and is never removed: a number is not given again, whatever became of its node. So
-- `node` is no key to the nodes: the row outlives theirs.
create table moorline.home (
    number            bytea primary key check (octet_length(number) = 4),
    name              text not null unique,
    node              bytea not null,
    created_at        timestamptz not null default clock_timestamp(),
    -- Of the exceptions below: a digest of all that the home has, and up to which of them they are written. A home
    -- begins without any.
    exceptions_digest bytea not null default '',
    exceptions_upto   bytea not null default decode(repeat('ff', 24), 'hex')
);

create index home_node on moorline.home (node);

-- Queues whose ids do not end with the number of the home that they are in: made before there were numbers, or imported.
create table moorline.home_exception (
    queue bytea primary key,
    home  bytea not null references moorline.home (number)
);

-- Makes the exceptions of a home between two ids, the second one included, be those that are given, in the order of
-- ids. Says how far it came: no further than to the last of `removed_max` rows that were too many.
create function moorline.write_home_exceptions(
    given_home bytea, given_digest bytea, behind bytea, upto bytea, queues bytea[], removed_max integer
) returns bytea language plpgsql as $$
declare
    stale   bytea[];
    reached bytea := upto;
begin
    select coalesce(array_agg(s.queue order by s.queue), '{}') into stale
    from (
        select e.queue from moorline.home_exception e
        where e.home = given_home and e.queue > behind and e.queue <= upto
          and not exists (select from unnest(queues) as q (queue) where q.queue = e.queue)
        order by e.queue limit removed_max
    ) s;
    if cardinality(stale) = removed_max then
        reached := stale[removed_max];
    end if;
    -- A queue that two homes have, because it was copied, is of the one that said so last.
    insert into moorline.home_exception as kept (queue, home)
    select q.queue, given_home from unnest(queues) as q (queue) where q.queue <= reached order by q.queue
    on conflict (queue) do update set home = excluded.home where kept.home <> excluded.home;
    delete from moorline.home_exception e where e.home = given_home and e.queue = any (stale);
    update moorline.home h set exceptions_digest = given_digest, exceptions_upto = reached
    where h.number = given_home;
    return reached;
end $$;
