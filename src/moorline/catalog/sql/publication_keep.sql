-- Nothing has changed up to a later snapshot, or (without one) the state begins anew with the next batch: whatever of
-- the last one is published, nothing more of it will be.
with ours as materialized (
    select from moorline.node where id = $6 and incarnation = $7 for key share
), moved as (
    update moorline.publication set snapshot = $3, described = $4
    where number = $1 and sequence = $2 and ($6::bytea is null or exists (select from ours))
    returning number
), dropped as (
    delete from moorline.publication_batch b using moved where b.publication = moved.number and $5
)
select number from moved
