-- One that is done stays so.
update moorline.home_move set state = 'cancelled', problem = ''
where home = $1 and state in ('asked', 'copying', 'handing')
returning id
