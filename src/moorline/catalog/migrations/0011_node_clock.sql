-- How far the wall clock of a node is ahead of the catalog's, as the node found it at one of its last signs of life.
-- Null until it has.
alter table moorline.node add column clock_ahead_ms bigint;
