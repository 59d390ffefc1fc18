with gone as (
    delete from moorline.access_member where name = $1 and member = $2 returning name, member
)
select moorline.access_changed('member', gone.name, gone.member, true, $3) from gone
