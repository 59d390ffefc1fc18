"""Room: access. What a node takes as a proof by Kerberos: of a user, or of a node of the cluster.

A user's name becomes a principal by rules. A node shows two things: by its keytab that it is one of the names
of `kerberos.nodes`, and then, wrapped, by the cluster's secret which home it has.
"""

from collections.abc import Callable, Sequence

import msgspec

from moorline.core.access import node_proof
from moorline.core.access.kerberos_name import KerberosRules, Pattern, check_name
from moorline.core.proof import ProofAccepted, ProofContinues, ProofRefused
from moorline.net.authentication import Exchange, Verdict
from moorline.net.kerberos import KerberosExchange, KerberosService


class KerberosProofs:
    """What the links of a node share: its service, the rules, and who may be a node."""

    def __init__(
        self, service: KerberosService, rules: KerberosRules, nodes: Sequence[Pattern] = ()
    ) -> None:
        self.service = service
        self.rules = rules
        self.nodes = tuple(nodes)

    def begin(self, as_node: Callable[[], Exchange]) -> "NodeOrUserExchange":
        return NodeOrUserExchange(self, as_node)

    def may_be_node(self, name: str) -> bool:
        return any(pattern.taken(name) is not None for pattern in self.nodes)


class NodeOrUserExchange(KerberosExchange):
    """A link by Kerberos, until it says which of the two it is."""

    def __init__(self, proofs: KerberosProofs, as_node: Callable[[], Exchange]) -> None:
        super().__init__(proofs.service, self._named)
        self._proofs = proofs
        self._as_node = as_node
        self._node: Exchange | None = None
        self._refusal = ""

    def _named(self, name: str) -> str:
        """A node need not be a user too: what the rules say of it counts only if it comes as one."""
        check_name(name)
        try:
            return self._proofs.rules.principal_of(name)
        except ValueError as error:
            if not self._proofs.may_be_node(name):
                raise
            self._refusal = str(error)
            return ""

    async def confirmed(self, proof: bytes) -> Verdict:
        if self._node is not None:
            return self._judged(await self._node.check(proof))
        if not proof.startswith(node_proof.AS_NODE):
            if self._refusal:
                return ProofRefused(f"Kerberos: {self._refusal}")
            return await super().confirmed(proof)
        if not self._proofs.may_be_node(self.claimed):
            return ProofRefused(
                "Kerberos: kerberos.nodes has no name like yours: you are no node here"
            )
        self._node = self._as_node()
        return self._judged(await self._node.check(proof[len(node_proof.AS_NODE) :]))

    def _judged(self, verdict: Verdict) -> Verdict:
        match verdict:
            case ProofAccepted(principal, token=mark):
                return msgspec.structs.replace(self.accepted(principal), token=mark)
            case ProofContinues() | ProofRefused():
                return verdict
