insert into moorline.access_carried (name) values ($1) on conflict do nothing returning name
