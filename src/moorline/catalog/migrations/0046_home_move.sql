-- How often a home has moved from node to node: its data folder has the same number, or is a copy of before.
-- `move` is the id of the last move.
alter table moorline.home
    add column moves integer not null default 0,
    add column move bytea not null default '';

-- The last move of each home, wanted or done. While it is under way the node that has the home writes here how far it is.
create table moorline.home_move (
    home         bytea primary key references moorline.home (number),
    id           bytea not null check (octet_length(id) = 16),
    -- The node that is to have it, by its id.
    target       bytea not null,
    state        text not null check (state in ('asked', 'copying', 'handing', 'done', 'failed', 'cancelled')),
    -- What is in the way, for people.
    problem      text not null default '',
    files        bigint not null default 0,
    bytes        bigint not null default 0,
    bytes_copied bigint not null default 0,
    -- What both sides had when the home was closed for the last time, and by which process it was closed.
    hash         bytea not null default '',
    incarnation  bytea,
    closed_at    timestamptz,
    opened_at    timestamptz,
    asked_at     timestamptz not null default clock_timestamp()
);
