-- The triggers go with their functions, of partitions and of the parent too.
drop function if exists moorline_records.moved_{n}() cascade;
drop function if exists moorline_records.owner_{n}() cascade;
drop function if exists moorline_records.truncate_{n}() cascade;
drop function if exists moorline_records.notify_{n}() cascade;
drop function if exists moorline_records.log_{n}() cascade;
drop function if exists moorline_records.stamp_{n}() cascade;
drop table if exists moorline_records.log_{n};
drop sequence if exists moorline_records.seq_{n}, moorline_records.log_n_{n}, moorline_records.log_limit_{n};
delete from moorline_records.moment where n = {n};
delete from moorline_records.registration where n = {n};
