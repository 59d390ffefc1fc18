-- The group and its first places in one statement: whoever sees the group sees them too, so that nobody leads it from
-- somewhere else. The reader that the function has just made is in no snapshot of ours; the key is checked at the end.
with declared as materialized (
    select (state).*, is_created from moorline.declare_group($1, $2, $3, $4, $5, $11)
), begun as (
    insert into moorline.progress (reader, node, shard, offset_low, acked, failures)
    select declared.reader, place.node, place.shard, place.offset_low, place.acked, place.failures
    from declared
    cross join unnest($6::text[], $7::integer[], $8::bigint[], $9::bytea[], $10::bytea[])
        as place (node, shard, offset_low, acked, failures)
    where declared.is_created
)
select * from declared
