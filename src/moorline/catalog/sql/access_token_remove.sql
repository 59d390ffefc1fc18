-- One of a user by its label, or all of them.
with gone as (
    delete from moorline.access_token where owner = $1 and ($2::text is null or label = $2) returning owner, hash
)
select moorline.access_changed('token', gone.owner, encode(gone.hash, 'hex'), true, $3) from gone
