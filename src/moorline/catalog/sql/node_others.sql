-- The nodes that a new name or home must not meet: those that are called so and gave a sign of life lately, and homes.
select exists (
    select from moorline.node
    where id <> $1 and name = $2 and seen_at > clock_timestamp() - $4::bigint * interval '1 millisecond'
) as is_named,
       array(select home from moorline.node where id <> $1 and home = any ($3::text[])) as homes
