-- Which cluster and database this is, and on which timeline. An ordinary role may ask all of it.
select
    s.system_identifier::text || '/' || d.oid::text as cluster,
    substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) as timeline
from pg_control_system() s
join pg_database d on d.datname = current_database();
