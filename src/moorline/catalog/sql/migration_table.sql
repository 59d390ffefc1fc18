-- Not to_regclass: it may answer from this session's cache, which does not yet know what another
-- node committed while we waited for the lock. A query sees it.
select exists (
    select from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'moorline' and c.relname = 'migration'
);
