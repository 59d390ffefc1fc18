-- Gives a principal without a service the one that its certificate had before there were principals. Where an operator
-- said whose that certificate's things are, this one is theirs, whoever comes with the certificate.
update moorline.service set principal = $1
where number = (
    select min(s.number) from moorline.service s
    left join moorline.access_owner o on o.known_as = encode(s.fingerprint, 'hex')
    where s.principal is null and (o.principal = $1 or o.principal is null and s.fingerprint = $2 and $2 <> ''::bytea)
) and not exists (select from moorline.service where principal = $1)
