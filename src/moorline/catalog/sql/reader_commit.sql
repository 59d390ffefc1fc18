-- Stores places of those readers that still have the given epochs, and returns these readers.
--
-- The row of the reader is locked `for no key update`, which is what a claim or an opening locks when it changes the
-- epoch. So one of the two is first. If it is the claim, we wait, the row is looked at again, and its epoch is no longer
-- ours. If we are, the claim waits until our places are stored, and whoever won it reads them. A weaker `for key share`
-- would pass beside a claim. `for share` would let two commits of one reader run side by side, which a Leader that
-- commits one after the other does not need, and could hold up a claim for as long as they overlap.
--
-- Readers are locked in order, and the places of a reader are touched only under its lock: commits cannot wait in a circle.
with held as (
    select r.number
    from moorline.reader r
    join unnest($1::bigint[], $2::bigint[]) as given (number, epoch)
        on given.number = r.number and given.epoch = r.epoch
    order by r.number for no key update of r
), stored as (
    insert into moorline.progress as kept (reader, node, shard, offset_low, acked, failures)
    select place.reader, place.node, place.shard, place.offset_low, place.acked, place.failures
    from unnest($3::bigint[], $4::text[], $5::integer[], $6::bigint[], $7::bytea[], $8::bytea[])
        as place (reader, node, shard, offset_low, acked, failures)
    join held on held.number = place.reader
    on conflict (reader, node, shard) do update set
        offset_low = excluded.offset_low,
        acked = excluded.acked,
        failures = excluded.failures
    -- A place goes on as a whole or stays as a whole: what is done above an older offset means nothing beside a newer.
    where excluded.offset_low >= kept.offset_low
)
select number from held
