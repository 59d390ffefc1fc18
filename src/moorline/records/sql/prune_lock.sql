-- One node at a time; the others have nothing to do then.
select pg_try_advisory_xact_lock({lock_class}, {n});
