"""Room: errors. The one tree of everything that can go wrong, and whose mistake it was.

    MoorlineError
    ├── ConfigError            the operator's: an option or a file says something we do not take
    │   ├── NotInstalled       the command needs packages that this environment does not have
    │   └── WrongNode          the list of a service has queues of a home that this cluster does not know
    ├── StartError             the operator's: the node cannot start here and now
    │   ├── FolderInUse        another node runs on this data folder
    │   ├── FolderUnusable     the data folder cannot be read or written
    │   │   └── HomeMoved      its home is at another node: the folder is a copy of before
    │   ├── AddressTaken       another program listens there
    │   ├── CatalogUnreachable Postgres does not answer
    │   ├── CatalogTooNew      the catalog was written by a newer Moorline
    │   ├── FormatTooNew       a folder or a file was
    │   ├── IdentityTaken      another process runs under the identity of this node
    │   ├── DiskFull           no room left on the device
    │   └── LogDamaged         the queues' write-ahead log is damaged
    ├── WireError              the peer's: bytes that break the protocol
    │   ├── FrameTooLarge
    │   ├── Malformed
    │   ├── Tampered           a wrapped link: what came was changed, repeated, moved or not wrapped
    │   └── Refused            the other end said goodbye and why
    │       ├── CertificateRefused          our certificate is not taken; below: why
    │       │   ├── CertificateExpired      it has ended
    │       │   ├── CertificateNotYetValid  its time has not come
    │       │   ├── CertificateRevoked      its authority took it back
    │       │   ├── CertificateUntrusted    it is of an authority that the node does not take
    │       │   ├── CertificateMisused      it is made for another use
    │       │   └── CertificateOfNobody     its names make no principal
    │       ├── KerberosError               Kerberos gave no proof, or the proof was not taken
    │       └── RefusedByQuota              we have as many connections as we may; an OverQuota too
    ├── ConnectionLost         the network's: the link is gone, calls in flight have no answer
    │   ├── Expired            the proof of who we are ended, and the link with it
    │   └── Unreachable        the link could not be opened at all
    │       └── Untrusted      the certificate of the node cannot be verified
    ├── TlsError               a certificate is not taken: CertificateRefused and Untrusted are this too
    ├── JournalDamaged         the disk's: files are not as they were written
    │   └── MessagesGone       retention or damage took messages that a query should read
    ├── TableRefused           the operator's: a table that cannot be registered, or served, as it is
    │   ├── TableBusy          its lock could not be had: others work on the table
    │   └── TableRestored      it comes from another cluster, or a dump: `moor records renew`
    ├── DatabaseUnreachable    the operator's: a Postgres with tables does not answer, or refuses us
    ├── BackupRefused          the operator's: no backup can be made there, or it is none, or not a whole one
    │   └── BackupDamaged      bytes of a backup are not those that were written
    ├── ImportRefused          the user's: a file of queues that cannot be taken in
    ├── SubscriptionEnded      another reader took over, or the queue or group is gone
    ├── Unfit                  the operator's: `moor doctor` found what keeps a node from working here
    ├── Drifting               a service and its node found no agreement
    ├── DriftFound             `moor service verify` or a job of `moor pipeline` found what differs
    ├── FlowFailed             the user's: a function of a flow of `moor pipeline run` raised
    ├── WrongLoop              the caller's: a connection is used from another event loop than its own
    ├── CallFailed             the server's answer to one call; `code` says which
    │   ├── Unsupported        the node does not run the role that answers it
    │   ├── TooLarge           the message is larger than the other end takes
    │   ├── NotFound           there is no queue, group, member or stream of that name
    │   │   └── Elsewhere      not here: the queue is of a home that another node has, and which is said
    │   ├── BadTopic           a topic, filter or group's name that cannot be one
    │   ├── BadPath            a path of a value, or a glob, that cannot be one
    │   ├── BadValue           what cannot be a value, or is too long for one
    │   ├── NoSuchValue        the publisher that was named for a path does not have it
    │   ├── NotReady           the resolver has just started, and publishers are yet to come back
    │   ├── BadAddress         a publisher claims an address that nobody could reach it at
    │   ├── AddressNotProven   nobody at the address that a publisher claims knows its secret
    │   ├── PublisherGone      the resolver does not know this publisher any more: it is to log in again
    │   ├── Referred           the path is another cluster's
    │   ├── BadStart           a place to begin at that is none
    │   ├── BadFilter          a filter of records, columns or known ids that cannot be one
    │   ├── NoSuchTable        no table of records has that name, or we may see nothing of it
    │   ├── NoSuchColumn       a table of records has no such column
    │   ├── RowTooLarge        a row of a table of records is larger than a client takes
    │   ├── TableChanged       a column that a copy reads, or its key, is another one
    │   ├── TableGone          a table of records was dropped
    │   ├── SessionTaken       the session is another connection's
    │   ├── LimitReached       a session or a node has as many of something as it may have
    │   ├── QuotaExceeded      the queue is full
    │   ├── NotAuthorized      this identity may not do that
    │   │   └── Denied         no right to it is granted to this principal
    │   ├── RightsUnknown      the node has not heard from the catalog for long, and knows nobody's rights
    │   ├── BadGrant           a path, principal, group of users or right that cannot be one
    │   ├── AlreadyThere       a user or token of that name is there
    │   ├── CannotCut          a backup of the node cannot be made now
    │   ├── NodeAlive          a node that is to be removed lives
    │   ├── CannotMove         a home that cannot be moved so
    │   ├── NoMessage          the message acknowledged is not the head
    │   ├── QueueOff           the recipient takes no more messages
    │   ├── QueueBlocked       the operator has blocked the queue
    │   ├── QueueDamaged       the queue's files are set aside
    │   ├── QueueInRepair      the queue is being checked or repaired
    │   ├── ServiceDisabled    the operator has disabled the service
    │   ├── ServiceTaken       another session of the service took over, at whatever node
    │   ├── HomeAway           the node that has a home does not answer: what is there waits for it
    │   ├── Ambiguous          several services are meant by that name
    │   ├── NodeDiskFull       the node's disk is nearly full
    │   ├── OverQuota          a principal has, or asks for, as much as it may
    │   ├── NotAudited         the audit trail cannot be written, and must be before this is done
    │   ├── TooManyFiles       the node has as many files open as the system allows
    │   ├── Stale              what is acknowledged was delivered over a link that is gone: it comes again
    │   └── OutcomeUnknown     nobody can say whether it was done: look before you ask again
    └── MachineError           ours: a state machine met what it must never meet

Every error carries a `code` (stable, for programs), a text that says what to do next, and the exit
code of a command that ends with it. docs/exit-codes.md lists them; a test keeps the two equal.
"""

from typing import ClassVar


class MoorlineError(Exception):
    """All of them; by itself it is nobody's but ours."""

    code: ClassVar[str] = "INTERNAL"
    exit_code: ClassVar[int] = 1


class ConfigError(MoorlineError):
    code = "CONFIG"
    exit_code = 3


class NotInstalled(ConfigError):
    """A client is installed without the packages of a node, and both without those of Spark."""

    code = "NOT_INSTALLED"


class WrongNode(ConfigError):
    """The list of a service has queues of a home that this cluster does not know; nothing was changed."""

    code = "WRONG_NODE"


class StartError(MoorlineError):
    code = "START"
    exit_code = 1


class FolderInUse(StartError):
    code = "FOLDER_IN_USE"
    exit_code = 4


class AddressTaken(StartError):
    code = "ADDRESS_TAKEN"
    exit_code = 5


class FolderUnusable(StartError):
    code = "FOLDER_UNUSABLE"
    exit_code = 6


class HomeMoved(FolderUnusable):
    """The home of a data folder is at another node: this folder is a copy of before."""

    code = "HOME_MOVED"


class CatalogUnreachable(StartError):
    code = "CATALOG_UNREACHABLE"
    exit_code = 7


class CatalogTooNew(StartError):
    code = "CATALOG_TOO_NEW"
    exit_code = 8


class FormatTooNew(StartError):
    """Not damage: nothing of it is repaired, and nothing is written beside it."""

    code = "FORMAT_TOO_NEW"
    exit_code = 25


class IdentityTaken(StartError):
    """Another process runs under the id of this data folder: one of the two is a copy."""

    code = "IDENTITY_TAKEN"
    exit_code = 20


class DiskFull(StartError):
    code = "DISK_FULL"
    exit_code = 9


class LogDamaged(StartError):
    code = "LOG_DAMAGED"
    exit_code = 13


class WireError(MoorlineError):
    code = "WIRE"
    exit_code = 11


class FrameTooLarge(WireError):
    """A frame is longer than the other end takes."""

    code = "FRAME_TOO_LARGE"


class Malformed(WireError):
    """Bytes that are no message of the protocol, or no text of the form that was asked for."""

    code = "MALFORMED"


class Refused(WireError):
    code = "REFUSED"
    by_reason: ClassVar[dict[str, type["Refused"]]] = {}

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason = reason
        self.text = text

    def __init_subclass__(cls) -> None:
        Refused.by_reason[cls.code] = cls

    @staticmethod
    def of_reason(reason: str, text: str) -> "Refused":
        """The error for the code of a goodbye."""
        return Refused.by_reason.get(reason, Refused)(reason, text)


class TlsError(MoorlineError):
    """TLS came to nothing: ours was refused, or theirs cannot be verified. Only raised as one of these."""

    code = "TLS"
    exit_code = 22


class CertificateRefused(Refused, TlsError):
    """The node does not take our certificate, and no subclass says why: the text does, as far as is known."""

    code = "CERTIFICATE_REFUSED"
    exit_code = 22


class CertificateExpired(CertificateRefused):
    """Its time is over: renew it."""

    code = "CERTIFICATE_EXPIRED"


class CertificateNotYetValid(CertificateRefused):
    """Its time has not come: wait, or set the clock of one of the machines."""

    code = "CERTIFICATE_NOT_YET_VALID"


class CertificateRevoked(CertificateRefused):
    """Its authority took it back: ask for another one."""

    code = "CERTIFICATE_REVOKED"


class CertificateUntrusted(CertificateRefused):
    """It is self-signed, or of an authority that the node does not take for this."""

    code = "CERTIFICATE_UNTRUSTED"


class CertificateMisused(CertificateRefused):
    """It is not made for clients."""

    code = "CERTIFICATE_MISUSED"


class CertificateOfNobody(CertificateRefused):
    """No principal can be made of its names: none, two, or one that no rule of the node maps."""

    code = "CERTIFICATE_OF_NOBODY"


class Tampered(WireError):
    """Somebody between the two ends changed, repeated or moved what was wrapped, or spoke in clear."""

    code = "TAMPERED"


class KerberosError(Refused):
    """A ticket could not be had, or the node did not take it: the text says why, and what to do."""

    code = "KERBEROS"
    exit_code = 23

    def __str__(self) -> str:
        return self.text


class ConnectionLost(MoorlineError):
    code = "CONNECTION_LOST"
    exit_code = 10


class Expired(ConnectionLost):
    """The proof of who we are does not hold any more, and ended the link: its time is over, it was revoked,
    its user was changed, or its token was taken back. Connect again with a new one."""

    code = "EXPIRED"
    exit_code = 22


class Unreachable(ConnectionLost):
    code = "UNREACHABLE"


class Untrusted(Unreachable, TlsError):
    """The certificate of the node cannot be verified. To wait and try again changes nothing."""

    code = "UNTRUSTED"


class JournalDamaged(MoorlineError):
    code = "JOURNAL_DAMAGED"
    exit_code = 15


class MessagesGone(JournalDamaged):
    """Messages that a query should read are not there any more, or cannot be read."""


class ImportRefused(MoorlineError):
    code = "IMPORT_REFUSED"
    exit_code = 18


class BackupRefused(MoorlineError):
    """No backup is made there, or what is there is none, not a whole one, or may not be restored here."""

    code = "BACKUP_REFUSED"
    exit_code = 27


class BackupDamaged(BackupRefused):
    """Bytes of a backup are not those that were written, or a copy of them did not become the same."""

    code = "BACKUP_DAMAGED"


class TableRefused(MoorlineError):
    """A table that is not served, and why; nothing of ours was left in it."""

    code = "TABLE_REFUSED"
    exit_code = 24


class TableBusy(TableRefused):
    """Others hold the table: nothing was changed. Try again when they are done, or wait longer."""

    code = "TABLE_BUSY"


class TableRestored(TableRefused):
    """Its rows were written in another cluster or database: `moor records renew` makes them ours."""

    code = "TABLE_RESTORED"


class DatabaseUnreachable(MoorlineError):
    """A Postgres with tables of users does not answer, or does not let us do it."""

    code = "DATABASE_UNREACHABLE"
    exit_code = 7


class SubscriptionEnded(MoorlineError):
    """The node ended a subscription, and `reason` says why.

    Of a queue: TAKEN_OVER by another reader, DELETED, BLOCKED or DAMAGED. Of a topic: KICKED by an operator,
    DELETED with its group, TAKEN_OVER by another connection of the session, DENIED because the right to it
    was taken away, UNAVAILABLE while the node knows nobody's rights, or FULL: the group has as many members
    as it may have.
    """

    code = "SUBSCRIPTION_ENDED"
    exit_code = 14

    def __init__(self, reason: str) -> None:
        super().__init__(f"the subscription is over: {reason}")
        self.reason = reason


class Unfit(MoorlineError):
    """`moor doctor` found something that keeps a node from working: each line says what to do about it."""

    code = "UNFIT"
    exit_code = 26


class Drifting(MoorlineError):
    """A service and its node found no agreement; the set seems to change all the time."""

    code = "DRIFTING"
    exit_code = 16


class DriftFound(MoorlineError):
    """Two sides that should be the same are not.

    Two sides of a service mean different queues, or a kept digest is not that of its set (`moor service
    verify`, `moor pipeline audit`); an archive was changed, sets of ids differ, or a copy is none.
    """

    code = "DRIFT_FOUND"
    exit_code = 17


class FlowFailed(MoorlineError):
    """A function of a flow raised: which flow, what it raised, and where in the user's file."""

    code = "FLOW_FAILED"
    exit_code = 21


class WrongLoop(MoorlineError):
    """A connection belongs to the event loop that it was opened in."""

    code = "WRONG_LOOP"
    exit_code = 1


class CallFailed(MoorlineError):
    """One call was refused. Rooms add subclasses for the codes that callers tell apart."""

    code = "FAILED"
    exit_code = 12
    by_code: ClassVar[dict[str, type["CallFailed"]]] = {}

    def __init_subclass__(cls) -> None:
        CallFailed.by_code[cls.code] = cls

    @staticmethod
    def of(code: str, text: str) -> "CallFailed":
        """The error for a code that came over the wire, a newer server's code included."""
        kind = CallFailed.by_code.get(code)
        if kind is not None:
            return kind(text)
        return CallFailed(f"{code}: {text}")


class Unsupported(CallFailed):
    """The node does not run the role that answers this call."""

    code = "UNSUPPORTED"


class TooLarge(CallFailed):
    """The message is larger than the other end takes."""

    code = "TOO_LARGE"


class NotFound(CallFailed):
    """There is no queue, service, group, member, subscription or stream of that name, or not any more."""

    code = "NOT_FOUND"


class Elsewhere(NotFound):
    """The queue is not of this node. `home` says whose its id is, and `addresses` where that node listens.

    Connect there and ask again: nothing was done here. Whether the queue is there only its home can say.
    """

    code = "ELSEWHERE"

    def __init__(self, text: str, home: str = "", addresses: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.home = home
        self.addresses = addresses


class BadTopic(CallFailed):
    """A topic, a filter or a group's name that cannot be one."""

    code = "BAD_TOPIC"


class BadPath(CallFailed):
    """A path of a value, or a glob over paths, that cannot be one."""

    code = "BAD_PATH"


class BadValue(CallFailed):
    """What cannot be a value, or is too long for one."""

    code = "BAD_VALUE"


class NoSuchValue(CallFailed):
    """The publisher that a resolver named for a path does not have it: it is gone, or was never made."""

    code = "NO_SUCH_VALUE"


class NotReady(CallFailed):
    """The resolver has just started: what it does not know may be there. Try again, or ask another."""

    code = "NOT_READY"


class BadAddress(CallFailed):
    """A publisher claims an address that cannot be one, or at which others could not reach it."""

    code = "BAD_ADDRESS"


class AddressNotProven(CallFailed):
    """The resolver has dialled the address that a publisher claims, and was not answered with its secret."""

    code = "ADDRESS_NOT_PROVEN"


class PublisherGone(CallFailed):
    """This connection is no publisher's, or it was silent for too long: it is to log in (again)."""

    code = "PUBLISHER_GONE"


class Referred(CallFailed):
    """The path is another cluster's, and following referrals did not end."""

    code = "REFERRED"


class BadStart(CallFailed):
    """A place to begin at that is none."""

    code = "BAD_START"


class BadFilter(CallFailed):
    """A filter of records, columns or known ids that cannot be one."""

    code = "BAD_FILTER"


class NoSuchTable(CallFailed):
    """No table of records has that name, or we may see nothing of it: nobody is told which."""

    code = "NO_SUCH_TABLE"


class NoSuchColumn(CallFailed):
    """A table of records has no such column."""

    code = "NO_SUCH_COLUMN"


class RowTooLarge(CallFailed):
    """A row that matches the filter is larger than a client takes: the text names it by its key. Until it is
    smaller, or left out by the filter or by the names of columns, the copy is not served."""

    code = "ROW_TOO_LARGE"


class TableChanged(CallFailed):
    """A column that a copy reads or is filtered by is another one, or gone."""

    code = "TABLE_CHANGED"


class TableGone(CallFailed):
    """A table of records was dropped, or is not registered any more."""

    code = "TABLE_GONE"


class SessionTaken(CallFailed):
    """Another connection has the session, or this one has another."""

    code = "SESSION_TAKEN"


class LimitReached(CallFailed):
    """There are as many subscriptions of a session, or stages of a node, as there may be."""

    code = "LIMIT"


class QuotaExceeded(CallFailed):
    """The queue is full: its recipient must read it to the end, quota marker included."""

    code = "QUOTA"


class NotAuthorized(CallFailed):
    """This identity may not do that."""

    code = "AUTH"


class Denied(NotAuthorized):
    """No right to it is granted to this principal. Whether there is such a thing is not said."""

    code = "DENIED"
    path = ""
    """At what, where this node refused it: for the audit."""


class RightsUnknown(CallFailed):
    """The node has not heard from the catalog for so long that it knows nobody's rights: try again."""

    code = "UNAVAILABLE"
    path = ""


class BadGrant(CallFailed):
    """A path, a principal, a group of users or a right that cannot be one; nothing was changed."""

    code = "BAD_GRANT"


class AlreadyThere(CallFailed):
    """There is a user, a token or a watch of that name; nothing was changed."""

    code = "EXISTS"


class NodeAlive(CallFailed):
    """A node that is to leave the cluster gave a sign of life a moment ago; nothing was changed."""

    code = "NODE_ALIVE"


class CannotCut(CallFailed):
    """A backup of a node cannot be made now: another is, or its disk or catalog does not answer."""

    code = "CANNOT_CUT"


class CannotMove(CallFailed):
    """A home cannot be moved so; nothing was changed, and it stays where it is."""

    code = "CANNOT_MOVE"


class NoMessage(CallFailed):
    """The message acknowledged is not the head of the queue; nothing was deleted."""

    code = "NO_MESSAGE"


class QueueOff(CallFailed):
    """The recipient takes no more messages in this queue."""

    code = "OFF"


class QueueBlocked(CallFailed):
    """The operator has blocked the queue."""

    code = "BLOCKED"


class QueueDamaged(CallFailed):
    """The queue's files are damaged and set aside; the operator can repair them."""

    code = "DAMAGED"


class QueueInRepair(CallFailed):
    """The queue is being checked or repaired, and too much waits for its end already: try again."""

    code = "IN_REPAIR"


class ServiceDisabled(CallFailed):
    """The operator has disabled the service."""

    code = "DISABLED"


class ServiceTaken(CallFailed):
    """Another session subscribed the service since, at this node or another: nothing was changed."""

    code = "TAKEN_OVER"


class HomeAway(CallFailed):
    """No node serves the home of a queue now: nothing was done. A client that stays asks again until its
    deadline. What was to be done with queues of a service is in its list, and done when the node is back."""

    code = "HOME_AWAY"


class Ambiguous(CallFailed):
    """Several services are meant by that name; an id or a longer fingerprint says which one."""

    code = "AMBIGUOUS"


class NodeDiskFull(CallFailed):
    """The node's disk is nearly full; it takes acknowledgements, but no messages."""

    code = "NODE_DISK_FULL"


class TooManyFiles(CallFailed):
    """The node has as many files open as the system lets it. Nothing was done: try again."""

    code = "TOO_MANY_FILES"


class OverQuota(CallFailed):
    """The principal has as much of something as it may have, or asks for it too often.

    The text says which quota, its bound, and when to come again. Nothing was done.
    """

    code = "OVER_QUOTA"
    quota: str = ""
    bound: int | None = None
    """None where it is another principal's quota, such as that of a queue's owner."""
    retry_after_ms: int | None = None
    """When there will be enough if nobody takes meanwhile; None: when something is given back, or never."""

    @property
    def path(self) -> str:
        """What it is in the audit."""
        return f"/quotas/{self.quota}"


class RefusedByQuota(Refused, OverQuota):
    """The principal, or the address that it came to, has as many connections as it may: close some."""

    code = "OVER_QUOTA"
    exit_code = 12
    quota = "connections"


class Stale(CallFailed):
    """The message was delivered before the connection was lost: it is not ours any more, and comes again.

    Unless the node has heard an acknowledgement of it that was on its way. To go on reading is enough.
    """

    code = "STALE"


class NotAudited(CallFailed):
    """What must be in the audit trail before it is done cannot be written there. Nothing was done."""

    code = "NOT_AUDITED"


class OutcomeUnknown(CallFailed):
    """Whether the call was done cannot be found out now. Look at what is there before you ask again.

    Every other `CallFailed` of a call that changes something means: it was not done, and will not be.
    """

    code = "OUTCOME_UNKNOWN"
    exit_code = 19


class MachineError(MoorlineError):
    code = "MACHINE"
    exit_code = 1
