-- A home that was on its way at the cut stays where it is restored: who asked for that move meant nodes of then.
update moorline.home_move set state = 'cancelled', problem = '' where state in ('asked', 'copying', 'handing')
