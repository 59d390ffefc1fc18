"""Room: access. Who may do what: rights, proofs, quotas and the audit trail, as a node serves them."""
