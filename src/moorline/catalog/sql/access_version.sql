select version, mark::text as mark from moorline.access_state
