-- Whether a child has another owner than its parent.
select exists (
    select from {table} child left join {parent} parent on {fill_matches}
    where child.moor_owner is distinct from parent.{owner_column}
);
