-- A service is its principal's, whatever that proves itself with. One that is older has the fingerprint of its
-- certificate only, until that certificate comes again or an operator says whose it is (access_owner).
--
-- The fingerprint is that of the certificate that opened it last, and stays of one row: nodes of the version before find a
-- service by it (on conflict), and go on while the nodes of a cluster are replaced one by one. A row that no certificate
-- opened, or whose certificate's fingerprint is another row's, has 'principal:NAME' there.
alter table moorline.service add column principal text unique;
