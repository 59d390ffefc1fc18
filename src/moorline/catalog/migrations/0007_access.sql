-- Who may do what: users, their tokens, groups of users, rows of rights, quotas, and whose old names belong to whom.
--
-- Every change raises the one version in its transaction and holds the row of it to the end. So changes are one behind
-- the other, and whoever has seen a version has seen all that came before it.

create table moorline.access_state (
    is_only     boolean primary key default true check (is_only),
    version     bigint not null default 0,
    -- Drawn by every change: a catalog that was restored and then changed has the old numbers, and other marks.
    mark        uuid not null default gen_random_uuid(),
    -- What nodes prove with that they are of this cluster. Three times 122 bits of chance make 32 bytes.
    secret      bytea not null check (octet_length(secret) = 32) default sha256(convert_to(
        gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8'
    )),
    is_upgraded boolean not null,
    is_kept     boolean not null default false
);

-- The last changes: what a node misses that knows one of them, and what is gone since then.
create table moorline.access_change (
    version    bigint primary key,
    mark       uuid not null,
    kind       text not null,
    first      text not null,
    second     text not null,
    is_removal boolean not null
);

create table moorline.access_user (
    name        text primary key,
    scrypt_n    integer,
    scrypt_r    integer,
    scrypt_p    integer,
    salt        bytea,
    hash        bytea,
    is_disabled boolean not null default false,
    created_at  timestamptz not null default clock_timestamp(),
    version     bigint not null,
    -- One without a password has tokens, or is only disabled.
    check (num_nulls(scrypt_n, scrypt_r, scrypt_p, salt, hash) in (0, 5))
);

-- Of a token there is only the SHA-256 here.
create table moorline.access_token (
    hash       bytea primary key check (octet_length(hash) = 32),
    owner      text not null references moorline.access_user on delete cascade,
    label      text not null,
    expires_at timestamptz,
    created_at timestamptz not null default clock_timestamp(),
    version    bigint not null,
    unique (owner, label)
);

-- A member need not be a user: certificates prove principals too.
create table moorline.access_member (
    name    text not null,
    member  text not null,
    version bigint not null,
    primary key (name, member)
);

create table moorline.access_grant (
    path    text not null check (octet_length(path) <= 1024),
    subject text not null,
    grants  text not null,
    denies  text not null,
    made_by text not null,
    made_at timestamptz not null default clock_timestamp(),
    version bigint not null,
    primary key (path, subject)
);

create table moorline.access_quota (
    subject text not null,
    kind    text not null,
    amount  bigint not null check (amount >= 0),
    version bigint not null,
    primary key (subject, kind)
);

-- Owners that were known by something else than a principal, such as the fingerprint of a certificate.
create table moorline.access_owner (
    known_as  text primary key,
    principal text not null,
    version   bigint not null
);

-- Names of operators in settings that got their row once, and get it never again.
create table moorline.access_carried (
    name text primary key
);

create index access_user_by_version on moorline.access_user (version);
create index access_token_by_version on moorline.access_token (version);
create index access_member_by_version on moorline.access_member (version);
create index access_grant_by_version on moorline.access_grant (version);
create index access_quota_by_version on moorline.access_quota (version);
create index access_owner_by_version on moorline.access_owner (version);

-- Says that something changed; the new version.
create function moorline.access_changed(
    given_kind text, given_first text, given_second text, given_removal boolean, kept_rows integer
) returns bigint language plpgsql as $$
declare
    changed moorline.access_state;
begin
    update moorline.access_state set version = version + 1, mark = gen_random_uuid() returning * into changed;
    insert into moorline.access_change (version, mark, kind, first, second, is_removal)
    values (changed.version, changed.mark, given_kind, given_first, given_second, given_removal);
    delete from moorline.access_change where version <= changed.version - kept_rows;
    return changed.version;
end $$;

-- What is fresh: nobody has ever used it. A node has a row from its first start on, and whatever else there is was made
-- by a client of one.
insert into moorline.access_state (is_upgraded)
select exists (select from moorline.node)
    or exists (select from moorline.service)
    or exists (select from moorline.session)
    or exists (select from moorline.shared_group);

-- The first rows; an upgraded catalog keeps what was allowed before. Operators by name are in the nodes' settings, and
-- get their rows when the nodes start.
insert into moorline.access_grant (path, subject, grants, denies, made_by, version)
select first.path, first.subject, first.grants, '',
       case when first.is_upgraded then 'upgrade' else 'first start' end,
       moorline.access_changed('grant', first.path, first.subject, false, 10000)
from (values
    (null, '/', '@loopback', 'slwpdag'),
    (null, '/queues', '@authenticated', 'p'),
    (null, '/services', '@authenticated', 'p'),
    (null, '/sessions', '@authenticated', 'p'),
    (false, '/topics/%u', '@authenticated', 'slwp'),
    (false, '/groups/%u', '@authenticated', 'slp'),
    (false, '/values/%u', '@authenticated', 'slwpd'),
    (true, '/topics', '@authenticated', 'slw'),
    (true, '/groups', '@authenticated', 'slp')
) as given (only_if, path, subject, grants)
join moorline.access_state state on given.only_if is null or given.only_if = state.is_upgraded
cross join lateral (select state.is_upgraded, given.path, given.subject, given.grants) as first;

-- Whoever made a group owns it; of those that are there nobody knows.
alter table moorline.shared_group add column owner text not null default '';

create or replace view moorline.group_state as
select r.number as reader, g.mode, g.name, g.filter, g.deliveries_max, g.start_us, r.epoch,
       case when r.lease_until > clock.now then r.holder else '' end as leader,
       case when r.lease_until > clock.now
           then ceil(extract(epoch from r.lease_until - clock.now) * 1000)::bigint else 0
       end as lease_left_ms,
       (extract(epoch from g.created_at) * 1000000)::bigint as created_us,
       g.start_offset, g.owner
from moorline.shared_group g
join moorline.reader r on r.shared_group = g.number
cross join (select clock_timestamp() as now) as clock;

drop function moorline.declare_group(text, text, text, integer, bigint, bigint);

-- Makes a group with its reader, or finds it as it is.
create function moorline.declare_group(
    given_mode text, given_name text, given_filter text, given_deliveries_max integer, given_start_us bigint,
    given_start_offset bigint, given_owner text
) returns table (state moorline.group_state, is_created boolean) language plpgsql as $$
declare
    group_number bigint;
begin
    -- The update changes nothing. It holds the row, so that nobody removes the group before we have its reader.
    insert into moorline.shared_group (mode, name, filter, deliveries_max, start_us, start_offset, owner)
    values (
        given_mode, given_name, given_filter, given_deliveries_max, given_start_us, given_start_offset, given_owner
    )
    on conflict (mode, name, filter) do update set start_us = shared_group.start_us
    returning number into group_number;
    insert into moorline.reader (shared_group) values (group_number) on conflict (shared_group) do nothing;
    is_created := found;
    return query
    select s, is_created from moorline.group_state s
    join moorline.reader r on r.number = s.reader where r.shared_group = group_number;
end $$;
