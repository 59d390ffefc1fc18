-- The service of a principal at its first contact; nothing if it has one. No certificate has such a fingerprint.
insert into moorline.service (id, principal, fingerprint, name, salt)
values ($1, $2, convert_to('principal:' || $2, 'UTF8'), $2, $3)
on conflict (principal) do nothing
