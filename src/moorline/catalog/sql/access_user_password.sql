update moorline.access_user set
    scrypt_n = $2, scrypt_r = $3, scrypt_p = $4, salt = $5, hash = $6,
    version = moorline.access_changed('user', $1, '', false, $7)
where name = $1
