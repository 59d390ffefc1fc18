-- The group and its first places in one statement: whoever sees the group sees them too, so that nobody leads it from
-- somewhere else. The reader that the function has just made is in no snapshot of ours; the key is checked at the end.
-- A process that lost its identity declares nothing: it does not know where the streams of its node end.
with ours as materialized (
    select from moorline.node where id = $12 and incarnation = $13 for key share
), declared as materialized (
    select (made.state).*, made.is_created
    from (select where $12::bytea is null or exists (select from ours)) as allowed
    cross join lateral moorline.declare_group($1, $2, $3, $4, $5, $11, $14) as made
), begun as (
    insert into moorline.progress (reader, node, shard, offset_low, acked, failures)
    select declared.reader, place.node, place.shard, place.offset_low, place.acked, place.failures
    from declared
    cross join unnest($6::text[], $7::integer[], $8::bigint[], $9::bytea[], $10::bytea[])
        as place (node, shard, offset_low, acked, failures)
    where declared.is_created
)
select * from declared
