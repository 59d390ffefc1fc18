-- The reader and its progress go with the group.
delete from moorline.shared_group
where number = (select shared_group from moorline.reader where number = $1) returning true
