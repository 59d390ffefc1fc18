"""Room: access. Who may do what: the table of rights, what each message needs, the commands about both."""
