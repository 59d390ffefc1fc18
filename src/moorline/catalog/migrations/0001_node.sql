create schema moorline;

create table moorline.migration (
    number integer primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default now()
);

-- The nodes of the cluster, each with its last sign of life.
create table moorline.node (
    name text primary key,
    id bytea not null,
    roles text[] not null,
    addresses text[] not null,
    http text,
    version text not null,
    started_at timestamptz not null,
    seen_at timestamptz not null
);
