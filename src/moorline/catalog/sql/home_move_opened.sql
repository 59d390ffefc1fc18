-- The home serves again where it was; nothing of what was proven counts any more.
update moorline.home_move set hash = '', incarnation = null, opened_at = clock_timestamp() where id = $1 and state <> 'done'
