with gone as (
    delete from moorline.access_grant where path = $1 and subject = $2 returning path, subject
)
select moorline.access_changed('grant', gone.path, gone.subject, true, $3) from gone
