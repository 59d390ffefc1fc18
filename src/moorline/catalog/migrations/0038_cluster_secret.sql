-- A secret of the cluster that was renewed is taken beside the new one until its time is over.
alter table moorline.access_state
    add column secret_before       bytea check (octet_length(secret_before) = 32),
    add column secret_before_until timestamptz,
    add check (num_nulls(secret_before, secret_before_until) in (0, 2));
