-- What a node needs, and no more: it reads, prunes the log, and moves the limit.
grant usage on schema moorline_records to {role};
grant select, update (cleared_below, pruned_below, pruned_at, log_limit) on moorline_records.registration to {role};
grant select on {table} to {role};
grant select on sequence moorline_records.seq_{n} to {role};
