"""MQTT: packets and machines."""

from moorline.limits.units import KIB, MIB

MQTT_CONNECT_BYTES_MAX = 128 * KIB
"""Largest CONNECT: a token of Kerberos, a will and names fit; a stranger gets no more memory than this."""

MQTT_USER_PROPERTIES_MAX = 1_024
"""User properties of one packet. Each costs an object, and may be 5 bytes on the wire."""

MQTT_FILTERS_PER_PACKET_MAX = 10_000
"""Filters of one SUBSCRIBE or UNSUBSCRIBE: clients that bring all of theirs at a start have thousands."""

MQTT_TOPICS_KNOWN_MAX = 256
"""Topics whose text a connection keeps, because clients name the same few again and again."""

MQTT_TOPIC_KNOWN_BYTES_MAX = 256
"""Longest of them: those of one connection are some 100 KiB at most."""

MQTT_PROPERTIES_KNOWN_MAX = 64
"""Properties of messages that a connection keeps read: what stays the same from one message to the next."""

MQTT_PROPERTIES_KNOWN_BYTES_MAX = 256
"""Longest of them, as bytes of a packet."""

MQTT_HELD_PACKETS_MAX = 4_096
"""Packets of one client that wait until it is let in: what one read may hold of short ones is more, and a
client that sends so much before its CONNACK can wait for that."""

PROXY_HEAD_BYTES_MAX = 2 * KIB
"""Head of the PROXY protocol with all that a proxy adds (names, certificates): those in use have 200."""

PROXY_HEAD_MS = 3_000
"""Time for it: a proxy says it at once."""

PROXY_SOURCES_MAX = 256
"""Networks of proxies that a setting names."""

MQTT_AUTH_ROUNDS_MAX = 8
"""AUTH packets of a client in one authentication; mechanisms that are in use need two or three."""

FILTER_INDEX_KNOWN_MAX = 4_096
"""Topics for which a node keeps who is to be woken; to find it anew takes some microseconds."""

FILTER_INDEX_READERS_KNOWN_MAX = 64
"""Readers of such a topic: with more of them it is looked up each time, so that the memory has a bound."""

MQTT_GRANTS_KNOWN_MAX = 1_024
"""Topics of one session for which is kept what its overlapping subscriptions grant."""

MQTT_PACKET_BYTES_MAX = 320 * KIB
"""Largest packet of MQTT that is taken: the largest body of a message, its topic and its properties."""

MQTT_RETAINED_BYTES_MAX = 256 * MIB
"""Retained messages of a node together: they are in memory."""

MQTT_SESSION_EXPIRY_S_MAX = 30 * 86_400
"""Longest time for which a session of MQTT outlives its connection: a device that is away for a month."""

MQTT_KEEP_ALIVE_S_MAX = 3_600
"""Longest silence of a client of MQTT 5."""

MQTT_CLIENT_ID_BYTES_MAX = 200
"""Longest client id: with what stands before it, it is the name of a session."""

MQTT_FILTERS_MAX = 10_000
"""Filters of one client: 8,000 of a bridge at its start, and some more."""

MQTT_FILTERS_BYTES_MAX = 2 * MIB
"""Filters of one client together: they are written to the catalog whole when one is added."""

MQTT_RECEIVE_MAX = 1_024
"""PUBLISHes of a client with QoS above 0 that are not answered yet: what one commit takes from it."""

MQTT_IN_FLIGHT_MAX = 1_024
"""The same to a client, also if it takes more: what comes again after a lost connection."""

MQTT_ALIASES_MAX = 64
"""Topic aliases that a client may use: each is a topic kept in memory."""

MQTT_CONNECT_MS = 10_000
"""Within this time of its connection a client has said who it is."""

MQTT_REFERENCES_TOLD_MAX = 8
"""Other nodes that a client is told of: it tries one after the other."""

MQTT_SYSTEM_TOPICS_MS = 10_000
"""Time between two values of a topic of $SYS, as dashboards expect them."""

MQTT_TURN_BYTES = 32 * KIB
"""Of one client in one turn of the loop: some hundreds of messages, or thousands of the shortest packets."""

MQTT_PLACES_PASS_MS = 60_000
"""Time in which the place of each lasting session that gets nothing comes to the ends of the streams: after a
crash of its node that much is read once more for it."""

MQTT_WILL_LOOK_MS = 1_000
"""Time between two looks at wills that are due in the catalog."""

MQTT_WILL_CLAIM_MS = 30_000
"""For so long a will is one node's to publish: longer than a commit takes on a busy disk, and after a crash
in between it is published so much later."""

MQTT_GOODBYE_MS = 1_000
"""A client that does not read its DISCONNECT is cut by then."""

MQTT_CLIENTS_PER_PAGE_MAX = 1_000
"""Rows of one answer to a list of clients."""

MQTT_FILTERS_WAITING_MAX = 16_384
"""Filters of SUBSCRIBEs and UNSUBSCRIBEs of one client that wait, before it is read from no more: 8,000 at a
start, and as many again."""

MQTT_FILTERS_PER_BATCH = 1_024
"""Filters that are written to the catalog, and answered, together."""

MQTT_STARTS_LOOK_MS = 1_000
"""Time between two looks at filters that began later than the place of their client."""

MQTT_FILTERS_PER_SLICE = 64
"""Filters of one client that are done in one turn of the loop: about a millisecond."""

MQTT_WILLS_PER_LOOK_MAX = 1_000
"""Wills that one look at the catalog takes; more are there at the next."""

MQTT_DROP_CAUSES_MAX = 16
"""Kinds of a drop that a client's figures name: seven today."""

MQTT_CLIENT_FILTERS_SHOWN_MAX = 1_000
"""Filters of one client that an answer shows."""
