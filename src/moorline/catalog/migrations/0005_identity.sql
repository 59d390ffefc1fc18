-- A node is its id. Its name is a label that may change; its home is the name under which its streams, its places and
-- its leases are known, given once and never changed.

-- Of several rows of one id, as copies of one folder left them, the last that gave a sign of life stays.
delete from moorline.node older using moorline.node newer
where older.id = newer.id and (older.seen_at, older.name) < (newer.seen_at, newer.name);

alter table moorline.node
    add column home        text,
    add column incarnation bytea not null default '',
    add column lock        text not null default '',
    add column lease_until timestamptz;
update moorline.node set home = name;
alter table moorline.node
    alter column home set not null,
    drop constraint node_pkey,
    add primary key (id),
    add unique (home);

-- Another process has this home from now on: what the one before it leads, and the sessions that it serves, get epochs
-- that it does not know. So its commits change nothing any more, and no commit has to look at the node's row.
-- Locked in the order that all keep: sessions, then readers by their number.
create function moorline.fence_home(given_home text) returns void language plpgsql as $$
begin
    perform from moorline.session s where s.node = given_home order by s.name for no key update;
    perform from moorline.reader r
    where r.holder = given_home
       or r.session in (select s.name from moorline.session s where s.node = given_home)
    order by r.number for no key update;
    update moorline.session s set epoch = nextval('moorline.epoch') where s.node = given_home;
    update moorline.reader r set epoch = s.epoch
    from moorline.session s where s.name = r.session and s.node = given_home;
    update moorline.reader r set epoch = nextval('moorline.epoch'), holder = null, lease_until = null
    where r.holder = given_home;
end $$;
