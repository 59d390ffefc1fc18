-- The numbers of the shards of topics that a node serves: written with its addresses whenever it begins to serve, from
-- its files, which decide them and do not change while it runs. By these a resolver that has no topics finds them.
alter table moorline.node add column shards integer[] not null default '{}';
