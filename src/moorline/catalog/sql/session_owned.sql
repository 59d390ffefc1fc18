-- How many sessions somebody has made that are still there.
select count(*) from moorline.session where owner = $1
