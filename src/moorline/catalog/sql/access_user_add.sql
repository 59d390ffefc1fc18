insert into moorline.access_user (name, scrypt_n, scrypt_r, scrypt_p, salt, hash, version)
values ($1, $2, $3, $4, $5, $6, moorline.access_changed('user', $1, '', false, $7))
