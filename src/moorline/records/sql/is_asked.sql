({key_names}) in (select * from unnest({arrays}))
