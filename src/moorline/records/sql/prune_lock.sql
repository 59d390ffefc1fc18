-- One node at a time; the others have nothing to do then. Of the session: it spans several transactions.
select pg_try_advisory_lock({lock_class}, {n});
