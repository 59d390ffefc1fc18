delete from moorline.publication where number = $1 returning number
