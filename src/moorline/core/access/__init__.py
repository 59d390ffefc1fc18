"""Room: core/access. Who somebody is and what it may do: principals, rights, quotas, wrong guesses; pure."""
