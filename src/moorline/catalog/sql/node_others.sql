-- The nodes that a new name or home must not meet: those that are called so and gave a sign of life lately, and homes,
-- also those whose nodes are gone. And the home that this node had before its row was removed, if it was.
select exists (
    select from moorline.node
    where id <> $1 and name = $2 and seen_at > clock_timestamp() - $4::bigint * interval '1 millisecond'
) as is_named,
       array(
           select home from moorline.node where id <> $1 and home = any ($3::text[])
           union
           select name from moorline.home where node <> $1 and name = any ($3::text[])
       ) as homes,
       (select name from moorline.home where node = $1 order by created_at limit 1) as home_before
