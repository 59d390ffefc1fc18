"""Certificates to try services with: an authority, a node and the service "billing".

They are written into the current folder. They are for trying only; trustme is a library for tests.
"""

import os

import trustme

os.umask(0o077)  # keys are for their owner alone
authority = trustme.CA()
authority.cert_pem.write_to_path("ca.pem")
node = authority.issue_cert("127.0.0.1")
node.private_key_and_cert_chain_pem.write_to_path("server.pem")
service = authority.issue_cert("billing@example.org", common_name="billing")
service.private_key_and_cert_chain_pem.write_to_path("billing.pem")
print("made ca.pem, server.pem and billing.pem")
