-- Groups, durable sessions, and the readers that keep a place in the streams for them.
--
-- What belongs to what, and goes with it:  shared_group ─► reader ─► progress
--                                          session ─► subscription ─► reader ─► progress
-- Whoever locks several rows locks them in this order, rows of one table by their key; so nobody waits in a circle.

-- Every epoch is drawn from here: none comes twice, also not for a session that is removed and made again.
create sequence moorline.epoch;

create table moorline.shared_group (
    number         bigint generated always as identity primary key,
    mode           text not null check (mode in ('shared', 'queue')),
    name           text not null,
    filter         text not null,
    deliveries_max integer not null,
    start_us       bigint not null,
    created_at     timestamptz not null default clock_timestamp(),
    unique (mode, name, filter)
);

-- A session outlives its connections. The bound of its name keeps the key of a subscription within what a btree takes.
create table moorline.session (
    name        text primary key check (octet_length(name) between 1 and 1024),
    owner       text not null,
    epoch       bigint not null,
    epoch_first bigint not null,
    expiry_s    bigint not null check (expiry_s >= 0),
    node        text not null,
    seen_at     timestamptz not null default clock_timestamp(),
    created_at  timestamptz not null default clock_timestamp()
) with (fillfactor = 70);

-- One with a group ($shared/…, $queue/…) has no reader of its own: the group's reader keeps the place.
create table moorline.subscription (
    session  text not null references moorline.session on delete cascade,
    filter   text not null,
    qos      smallint not null check (qos between 0 and 2),
    start_us bigint not null,
    primary key (session, filter)
);

-- Belongs to a group, which one node leads until its lease ends, or to a subscription, which has the epoch of its
-- session. No commit passes that knows another epoch. The numbers are never used again.
create table moorline.reader (
    number       bigint generated always as identity primary key,
    shared_group bigint unique references moorline.shared_group on delete cascade,
    session      text,
    filter       text,
    epoch        bigint not null default 0,
    holder       text,
    lease_until  timestamptz,
    unique (session, filter),
    foreign key (session, filter) references moorline.subscription on delete cascade,
    check (num_nonnulls(shared_group, session) = 1),
    check ((session is null) = (filter is null)),
    check ((holder is null) = (lease_until is null))
) with (fillfactor = 70);

-- A reader's place in a shard: everything below offset_low is done; what is done above it, and what has failed, is
-- encoded by the reader. No column that a commit changes is in an index, and half of each page is free: the new
-- version of a row stays on its page, and the table stays small however often it changes.
create table moorline.progress (
    reader     bigint not null references moorline.reader on delete cascade,
    node       text not null,
    shard      integer not null,
    offset_low bigint not null check (offset_low >= 0),
    acked      bytea not null,
    failures   bytea not null,
    primary key (reader, node, shard)
) with (fillfactor = 50);

-- Groups as they are shown. A lease that is over leads nothing.
create view moorline.group_state as
select r.number as reader, g.mode, g.name, g.filter, g.deliveries_max, g.start_us, r.epoch,
       case when r.lease_until > clock.now then r.holder else '' end as leader,
       case when r.lease_until > clock.now
           then ceil(extract(epoch from r.lease_until - clock.now) * 1000)::bigint else 0
       end as lease_left_ms,
       (extract(epoch from g.created_at) * 1000000)::bigint as created_us
from moorline.shared_group g
join moorline.reader r on r.shared_group = g.number
cross join (select clock_timestamp() as now) as clock;

-- Sessions as they are shown: a row for each subscription, and one without any for a session that has none.
create view moorline.session_state as
select s.name, s.owner, s.epoch, s.epoch = s.epoch_first as is_new, s.expiry_s, s.node,
       (extract(epoch from s.seen_at) * 1000000)::bigint as seen_us,
       (extract(epoch from s.created_at) * 1000000)::bigint as created_us,
       u.filter, u.qos, r.number as reader, u.start_us
from moorline.session s
left join moorline.subscription u on u.session = s.name
left join moorline.reader r on r.session = u.session and r.filter = u.filter;

-- Makes a group with its reader, or finds it as it is.
create function moorline.declare_group(
    given_mode text, given_name text, given_filter text, given_deliveries_max integer, given_start_us bigint
) returns table (state moorline.group_state, is_created boolean) language plpgsql as $$
declare
    group_number bigint;
begin
    -- The update changes nothing. It holds the row, so that nobody removes the group before we have its reader.
    insert into moorline.shared_group (mode, name, filter, deliveries_max, start_us)
    values (given_mode, given_name, given_filter, given_deliveries_max, given_start_us)
    on conflict (mode, name, filter) do update set start_us = shared_group.start_us
    returning number into group_number;
    insert into moorline.reader (shared_group) values (group_number) on conflict (shared_group) do nothing;
    is_created := found;
    return query
    select s, is_created from moorline.group_state s
    join moorline.reader r on r.number = s.reader where r.shared_group = group_number;
end $$;

-- Makes a session or takes it over: from here on whoever opened it before is fenced, and so are its readers.
-- No row if the session is another owner's.
create function moorline.open_session(given_name text, given_owner text, given_node text, given_expiry_s bigint)
returns setof moorline.session_state language plpgsql as $$
declare
    opened bigint;
begin
    insert into moorline.session as kept (name, owner, epoch, epoch_first, expiry_s, node)
    select given_name, given_owner, drawn, drawn, given_expiry_s, given_node
    from (select nextval('moorline.epoch') as drawn) as fresh
    on conflict (name) do update set
        -- Drawn again, under the lock of the row: what was drawn above may be older than the row's.
        epoch = nextval('moorline.epoch'),
        expiry_s = excluded.expiry_s,
        node = excluded.node,
        seen_at = clock_timestamp()
    where kept.owner = excluded.owner
    returning epoch into opened;
    if opened is null then
        return;
    end if;
    perform from moorline.reader r where r.session = given_name order by r.number for no key update;
    update moorline.reader r set epoch = opened where r.session = given_name;
    return query select * from moorline.session_state s where s.name = given_name order by s.filter;
end $$;

-- Adds a subscription, or changes the qos of one that is there. No row if the session was opened again since.
create function moorline.subscribe(
    given_session text, given_epoch bigint, given_filter text, given_qos smallint, given_start_us bigint,
    has_reader boolean
) returns table (filter text, qos smallint, reader bigint, start_us bigint) language plpgsql as $$
begin
    -- Held to the end: an opening that comes meanwhile waits, and then finds our reader and fences it.
    perform from moorline.session s
    where s.name = given_session and s.epoch = given_epoch for no key update;
    if not found then
        return;
    end if;
    insert into moorline.subscription as kept (session, filter, qos, start_us)
    values (
        given_session, given_filter, given_qos,
        coalesce(given_start_us, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
    )
    on conflict on constraint subscription_pkey do update set qos = excluded.qos;
    if has_reader then
        insert into moorline.reader (session, filter, epoch) values (given_session, given_filter, given_epoch)
        on conflict on constraint reader_session_filter_key do nothing;
    end if;
    return query
    select s.filter, s.qos, s.reader, s.start_us from moorline.session_state s
    where s.name = given_session and s.filter = given_filter;
end $$;

-- Removes a subscription with its reader, if it is there. False if the session was opened again since.
create function moorline.unsubscribe(given_session text, given_epoch bigint, given_filter text)
returns boolean language plpgsql as $$
begin
    perform from moorline.session s
    where s.name = given_session and s.epoch = given_epoch for no key update;
    if not found then
        return false;
    end if;
    delete from moorline.subscription u where u.session = given_session and u.filter = given_filter;
    return true;
end $$;

-- Removes sessions with all they have. The caller holds the rows of the sessions, so no reader is added meanwhile.
create function moorline.remove_sessions(names text[]) returns void language plpgsql as $$
begin
    -- A cascade would lock the readers in any order, and a commit of many readers would wait for it in a circle.
    perform from moorline.reader r where r.session = any (names) order by r.number for update;
    delete from moorline.session s where s.name = any (names);
end $$;

create function moorline.remove_session(given_name text) returns boolean language plpgsql as $$
begin
    perform from moorline.session s where s.name = given_name for update;
    if not found then
        return false;
    end if;
    perform moorline.remove_sessions(array[given_name]);
    return true;
end $$;

-- Removes sessions that nobody has used for as long as they were to be kept. One that is locked is passed over: somebody
-- is using it, or another node is removing it.
create function moorline.remove_expired_sessions(count_max integer) returns text[] language plpgsql as $$
declare
    expired text[];
begin
    select coalesce(array_agg(e.name), '{}') into expired
    from (
        select s.name from moorline.session s
        where s.seen_at + s.expiry_s * interval '1 second' <= clock_timestamp()
        order by s.name limit count_max for update skip locked
    ) e;
    perform moorline.remove_sessions(expired);
    return expired;
end $$;
