-- The batch and the place that it leads to, in one statement, before anything of it is published. No row if another
-- process has the identity, the publication was stopped or belongs to another home, or a batch is there already.
--
-- The row of the publication is changed first, and so is locked: of two that store, the second looks at it again, and
-- finds another sequence.
with ours as materialized (
    select from moorline.node where id = $9 and incarnation = $10 for key share
), moved as (
    update moorline.publication p
    set sequence = $3, round = $4, snapshot = $5, described = $6, problem = ''
    where p.number = $1 and p.sequence = $2
      and ($9::bytea is null or exists (select from ours))
      and not exists (select from moorline.publication_batch b where b.publication = p.number)
    returning p.number
)
insert into moorline.publication_batch (publication, sequence, shards, body)
select number, $2, $7, $8 from moved
returning publication
