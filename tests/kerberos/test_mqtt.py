"""MQTT 5 by Kerberos: AUTH with GSSAPI and a real KDC, once more on an open connection, and refused."""

import asyncio
from pathlib import Path

import pytest
from tests.kerberos.realm import Realm
from tests.mqtt.wire_client import WireClient
from tests.process.nodes import NodeProcess, run_moor

from moorline.core.mqtt.packets import MQTT_5, Auth, Connack, Connect, Disconnect, Properties
from moorline.core.mqtt.reason import ReasonCode
from moorline.net.kerberos import COMPLETE, KerberosCall

pytestmark = pytest.mark.process

SERVICE = "moorline/127.0.0.1@MOOR.TEST"
METHOD = "GSSAPI"


def flags(realm: Realm) -> list[str]:
    return [
        "--set=access.mechanisms=certificate,password,token,anonymous,gssapi@mqtt://127.0.0.1:0",
        "--set=access.kerberos=*@MOOR.TEST={}",
        f"--set=kerberos.keytab={realm.keytab('moorline/127.0.0.1')}",
        f"--set=kerberos.service={SERVICE}",
    ]


def said(data: bytes, reason: ReasonCode = ReasonCode.CONTINUE_AUTHENTICATION) -> Auth:
    return Auth(reason, Properties(authentication_method=METHOD, authentication_data=data or None))


def alice(realm: Realm) -> KerberosCall:
    return KerberosCall(SERVICE, keytab=realm.keytab("alice"), principal="alice@MOOR.TEST")


def answered(client: WireClient, call: KerberosCall) -> None:
    """The node has proven itself, and hears that we are no recording."""
    token = client.hear(Auth).properties.authentication_data
    assert token is not None
    asyncio.run(call.answer(COMPLETE + token))
    client.say(said(call.wrapping().wrap(b"")))


def connect(client: WireClient, data: bytes) -> None:
    properties = Properties(authentication_method=METHOD, authentication_data=data or None)
    client.say(Connect(MQTT_5, client.name, True, 0, properties=properties))


def test_a_ticket_proves_a_principal_and_may_be_shown_again(realm: Realm, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", *flags(realm)) as node:
        granted = run_moor(
            "grant", "add", "/topics/ours", "alice", "sw", f"--address={node.address}"
        )
        assert granted.returncode == 0, granted.stderr
        client, call = WireClient(node.mqtt, name="by-ticket"), alice(realm)
        connect(client, asyncio.run(call.first()))
        answered(client, call)
        assert client.hear(Connack).reason is ReasonCode.SUCCESS
        assert client.publish("ours/a", b"x", 1) is ReasonCode.SUCCESS
        assert client.publish("theirs/a", b"x", 1) is ReasonCode.NOT_AUTHORIZED
        again = alice(realm)
        client.say(said(asyncio.run(again.first()), ReasonCode.RE_AUTHENTICATE))
        answered(client, again)
        assert client.hear(Auth).reason is ReasonCode.SUCCESS
        assert client.publish("ours/a", b"x", 1) is ReasonCode.SUCCESS
        client.socket.close()


def test_a_recorded_token_alone_lets_nobody_in(realm: Realm, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", *flags(realm)) as node:
        client, call = WireClient(node.mqtt, name="recording"), alice(realm)
        connect(client, asyncio.run(call.first()))
        client.hear(Auth)
        client.say(said(b"not wrapped"))
        assert client.hear(Connack).reason is ReasonCode.NOT_AUTHORIZED
        assert client.is_closed()


def test_another_method_and_garbage_are_refused(realm: Realm, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", *flags(realm)) as node:
        client = WireClient(node.mqtt, name="other")
        properties = Properties(authentication_method="SCRAM-SHA-1")
        client.say(Connect(MQTT_5, "other", True, 0, properties=properties))
        assert client.hear(Connack).reason is ReasonCode.BAD_AUTHENTICATION_METHOD
        client = WireClient(node.mqtt, name="garbage")
        connect(client, b"garbage")
        assert client.hear(Connack).reason is ReasonCode.NOT_AUTHORIZED
        anonymous = WireClient(node.mqtt, name="anonymous")
        assert anonymous.connect().reason is ReasonCode.NOT_AUTHORIZED
        assert not isinstance(anonymous.heard, Disconnect)
