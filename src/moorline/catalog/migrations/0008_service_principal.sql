-- A service is its principal's, whatever that proves itself with. One that is older has the fingerprint of its
-- certificate only, until that certificate comes again or an operator says whose it is (access_owner).
alter table moorline.service add column principal text unique;

-- Of the certificate that opened it last; empty where there was none. A renewed one is another.
alter table moorline.service drop constraint service_fingerprint_key;
create index service_by_fingerprint on moorline.service (fingerprint);
