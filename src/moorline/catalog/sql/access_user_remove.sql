with gone as (
    delete from moorline.access_user where name = $1 returning name
)
select moorline.access_changed('user', gone.name, '', true, $2) from gone
