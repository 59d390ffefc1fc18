insert into moorline_records.registration (
    n, name, relation, schema_name, table_name, key, owner, owner_from, parent, filters, capture, salt, epoch, cluster,
    log_rows_max, log_limit
) values (
    {n}, {name}, {relation}, {schema_name}, {table_name}, array[{key}]::text[], {owner}, {owner_from}, {parent},
    array[{filters}]::text[], {capture}, '\x{salt}', '{epoch}', {cluster}, {log_rows_max}, {log_rows_max}
);
