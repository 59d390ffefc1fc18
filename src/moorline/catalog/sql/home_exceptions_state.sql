select exceptions_digest as digest, exceptions_upto as upto from moorline.home where number = $1
