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

-- Makes the exceptions of a home between two ids, the second one included, be those that are given. Says how far it
-- came: no further than to the last of `rows_max` rows that were there.
create function moorline.write_home_exceptions(
    given_home bytea, given_digest bytea, behind bytea, upto bytea, queues bytea[], rows_max integer
) returns bytea language plpgsql as $$
declare
    found_queues bytea[];
    reached      bytea := upto;
begin
    -- By themselves, in the order of the key: joined with what is given, Postgres reads the whole table.
    found_queues := array(
        select e.queue from moorline.home_exception e
        where e.home = given_home and e.queue > behind and e.queue <= upto
        order by e.queue limit rows_max
    );
    if cardinality(found_queues) = rows_max then
        reached := found_queues[rows_max];
    end if;
    -- A queue that two homes have, because it was copied, is of the one that said so last. In the order of ids, so that two
    -- of them do not wait for each other.
    insert into moorline.home_exception (queue, home)
    select missing.queue, given_home
    from (select unnest(queues) except select unnest(found_queues)) as missing (queue)
    where missing.queue <= reached
    order by missing.queue
    on conflict (queue) do update set home = excluded.home;
    delete from moorline.home_exception e
    where e.home = given_home
      and e.queue = any (array(select unnest(found_queues) except select unnest(queues)));
    update moorline.home h set exceptions_digest = given_digest, exceptions_upto = reached
    where h.number = given_home;
    return reached;
end $$;
