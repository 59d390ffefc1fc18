-- The home is closed from now on: what is handed over must be of this process, and of nobody who came later.
update moorline.home_move set state = 'handing', incarnation = $2, hash = '', closed_at = clock_timestamp(), opened_at = null
where id = $1 and state in ('asked', 'copying', 'handing')
returning true
