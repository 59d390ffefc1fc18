-- No process of before holds an identity here: each start of a restored folder is another one, and notices it.
update moorline.node set lock = '', lease_until = null
