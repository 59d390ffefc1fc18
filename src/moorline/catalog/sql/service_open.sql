-- The service of a certificate, made at its first contact.
insert into moorline.service (id, fingerprint, name, salt) values ($1, $2, $3, $4)
on conflict (fingerprint) do update set name = excluded.name
returning number, id, name, salt, is_disabled
