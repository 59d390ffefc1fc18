-- All but the newest.
delete from moorline.pipeline_run
where started_at < (
    select started_at from moorline.pipeline_run order by started_at desc offset $1 limit 1
)
