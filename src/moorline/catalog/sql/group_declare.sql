select (state).*, is_created from moorline.declare_group($1, $2, $3, $4, $5)
