-- The services that a text may mean: a name, an id, or the beginning of a fingerprint.
select * from (
    select number, id, case when substring(fingerprint for 10) = 'principal:' then '' else fingerprint end as fingerprint,
           coalesce(principal, '') as principal, name, salt, is_disabled, epoch, created_at
    from moorline.service
) shown
where name = $1 or id = $2 or ($1 <> '' and starts_with(encode(fingerprint, 'hex'), lower($1))) order by number
