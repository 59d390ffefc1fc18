insert into moorline.record_key (secret, valid_until)
select $1, clock_timestamp() + make_interval(secs => $2::float8 + $3::float8)
where not exists (
    select from moorline.record_key where created_at > clock_timestamp() - make_interval(secs => $2::float8)
)
