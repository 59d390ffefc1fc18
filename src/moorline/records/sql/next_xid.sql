-- A new number: all that have begun have lower ones. The xmax of a snapshot is no such number: it is above those that
-- are over, and not above those that are open.
select pg_current_xact_id()::text;
