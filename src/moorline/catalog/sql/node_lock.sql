-- Claims are rare and look at several rows: one at a time. Given back at the end of the transaction.
select pg_advisory_xact_lock(hashtext('moorline.identity'))
