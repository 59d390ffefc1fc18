-- Rows that were put there behind the snapshot, which their index finds; and those of before that were changed behind it,
-- which their lines find, each by its key: so nothing here is planned by how many there may be.
with first as materialized (
    {first_lines}
)
{put_there}
union all
{changed}
