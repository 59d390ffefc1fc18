-- How many groups somebody has made.
select count(*) from moorline.shared_group where owner = $1
