delete from moorline.record_key where valid_until < clock_timestamp()
