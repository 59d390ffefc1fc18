with gone as (
    delete from moorline.access_quota where subject = $1 and kind = $2 returning subject, kind
)
select moorline.access_changed('quota', gone.subject, gone.kind, true, $3) from gone
