"""Room: access. Who may do what: proofs, rights, quotas and the audit, as a node serves them."""
