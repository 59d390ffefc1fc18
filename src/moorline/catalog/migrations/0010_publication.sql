-- Tables of records that feed a topic, and the one batch of each that is being published.
--
-- A publication belongs to one home: the streams that remember its messages are there. `sequence` is the number of the
-- last message of the last batch that was stored, `snapshot` where the table was when that batch had been read. Without
-- a snapshot the next batch begins the state anew. `described` tells columns, partitions and epoch of the table then.
create table moorline.publication (
    number     bigint generated always as identity primary key,
    name       text not null unique check (octet_length(name) between 1 and 512),
    topic      text not null,
    home       text not null,
    owner      text not null,
    sequence   bigint not null default 0,
    round      bigint not null default 0,
    snapshot   text,
    described  text not null default '',
    problem    text not null default '',
    created_at timestamptz not null default clock_timestamp()
);

-- What is read from a table cannot be read again in the same order: it is here before it is published, and until it is.
-- `shards` is the number of the home's shards: with another one its streams do not know what they have of the batch.
create table moorline.publication_batch (
    publication bigint primary key references moorline.publication on delete cascade,
    sequence    bigint not null,
    shards      integer not null,
    body        bytea not null check (octet_length(body) <= 4194304)
);
