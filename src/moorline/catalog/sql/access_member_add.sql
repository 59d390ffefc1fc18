insert into moorline.access_member (name, member, version)
values ($1, $2, moorline.access_changed('member', $1, $2, false, $3))
