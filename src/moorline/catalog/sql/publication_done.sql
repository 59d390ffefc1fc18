-- The batch is in the streams of its home. Another process under our identity may have a copy of the folder that lacks
-- it: then it stays.
with ours as materialized (
    select from moorline.node where id = $3 and incarnation = $4 for key share
)
delete from moorline.publication_batch
where publication = $1 and sequence = $2 and ($3::bytea is null or exists (select from ours))
returning publication
