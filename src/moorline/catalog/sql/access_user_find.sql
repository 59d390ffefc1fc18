select name, scrypt_n, scrypt_r, scrypt_p, salt, hash, is_disabled, version
from moorline.access_user where name = $1
