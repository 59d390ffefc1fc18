-- Gives a principal without a service the one that its certificate had before there were principals.
update moorline.service set principal = $1
where number = (
    select min(number) from moorline.service
    where principal is null and (
        fingerprint = $2 and $2 <> ''::bytea
        or encode(fingerprint, 'hex') in (select known_as from moorline.access_owner where principal = $1)
    )
) and not exists (select from moorline.service where principal = $1)
