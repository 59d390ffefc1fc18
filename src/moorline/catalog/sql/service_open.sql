-- The service of a principal. It has the fingerprint of the certificate that opened it last, unless another row has that.
update moorline.service set name = $1, fingerprint = case
    when $2 = ''::bytea or exists (select from moorline.service other where other.fingerprint = $2) then fingerprint
    else $2
end
where principal = $1
returning number, id, name, salt, is_disabled, epoch
