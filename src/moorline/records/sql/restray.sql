update {table} child set moor_owner = null
where ({key_list}) in (
    select {child_keys} from {table} child left join {parent} parent on {fill_matches}
    where child.moor_owner is distinct from parent.{owner_column}
);
