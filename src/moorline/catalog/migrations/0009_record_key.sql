-- Keys that sign the cursors of records. The newest signs; each is good for reading until its end.
create table moorline.record_key (
    id          integer generated always as identity primary key,
    secret      bytea not null check (octet_length(secret) = 32),
    created_at  timestamptz not null default clock_timestamp(),
    valid_until timestamptz not null
);
