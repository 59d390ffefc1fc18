-- What MQTT knows of a session beyond its place: filters with their options, and exchanges of QoS 2 that are unfinished.
-- Both are encoded by the node (mqtt/stored.py); they are written whole, and only by whoever has the session's epoch.
create table moorline.mqtt_session (
    name          text primary key references moorline.session on delete cascade,
    subscriptions bytea not null default '',
    exchanges     bytea not null default ''
) with (fillfactor = 50);

-- A will outlives its session's row: it may be due when that has expired. `due_at` is null while its client is connected.
create table moorline.mqtt_will (
    name      text primary key,
    node      text not null,
    principal text not null,
    proof     text not null,
    is_local  boolean not null,
    will      bytea not null,
    due_at    timestamptz,
    delay_s   bigint not null check (delay_s >= 0)
);
create index mqtt_will_due on moorline.mqtt_will (due_at) where due_at is not null;
