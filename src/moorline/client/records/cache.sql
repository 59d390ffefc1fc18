-- The cache of a copy: its rows, and one line about them. The check is over all rows as they are in the file.
create table about (
    one integer primary key check (one = 1),
    asked blob not null,
    facts blob not null,
    salt blob not null,
    cursor text not null,
    check_count integer not null,
    check_hash blob not null
);
create table held (key blob primary key, seq integer not null, row blob not null) without rowid;
