-- All, those of a home, or the one of a number or a name; each with the batch that is being published.
select p.number, p.name, p.topic, p.home, p.owner, p.is_local, p.sequence, p.round, p.snapshot, p.described, p.problem,
       b.sequence as batch_sequence, b.shards as batch_shards, b.body as batch_body
from moorline.publication p
left join moorline.publication_batch b on b.publication = p.number
where ($1::text is null or p.home = $1) and ($2::bigint is null or p.number = $2) and ($3::text is null or p.name = $3)
order by p.name
