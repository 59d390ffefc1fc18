-- A row as JSON; and of one that is too much for any client the columns that are not, the shortest first, with the
-- bytes that all of it has. They are put together from the columns: JSON that Postgres takes, it need not read again
-- without an error. The OFFSETs keep it from making the text once for each time that it is named.
cross join lateral (select {json_columns}) r
cross join lateral (
    select
        case
            when octet_length(made.text) <= {row_bytes_max} then made.text
            else (
                select '{' || coalesce(string_agg(c.name || ':' || c.value, ','), '') || '}'
                from (
                    select v.name, v.value, sum(octet_length(v.value)) over (
                        order by octet_length(v.value), v.name
                    ) as bytes
                    from (values {named_values}) v (name, value)
                ) c
                where c.bytes <= {row_bytes_max}
            )
        end as text,
        case when octet_length(made.text) > {row_bytes_max} then octet_length(made.text) else 0 end as whole_bytes
    from (select row_to_json(r)::text as text offset 0) made
    offset 0
) told
