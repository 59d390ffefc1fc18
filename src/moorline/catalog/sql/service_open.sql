-- The service of a principal, made at its first contact.
insert into moorline.service (id, principal, fingerprint, name, salt) values ($1, $2, $3, $2, $4)
on conflict (principal) do update set name = excluded.name, fingerprint = excluded.fingerprint
returning number, id, name, salt, is_disabled
