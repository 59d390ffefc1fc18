"""Writes the dashboard of a node: `python tools/dashboard.py deploy/grafana/moorline.json`.

The rows below are what is looked at; all that Grafana wants around them is made here. A test compares
the file with what this makes, and the metrics in it with those of a node.
"""

import json
import sys
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 8, 7
"""Of a panel: three stand side by side in the 24 columns of a dashboard."""

WHICH = 'instance=~"$instance"'


def rate(name: str) -> str:
    return f"rate(moorline_{name}_total{{{WHICH}}}[$__rate_interval])"


def now(name: str) -> str:
    return f"moorline_{name}{{{WHICH}}}"


def quantile(share: float, name: str) -> str:
    within = f"rate(moorline_{name}_bucket{{{WHICH}}}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by (instance, le) ({within}))"


# Row: panels; panel: title, unit of Grafana, lines by their legend.
ROWS: dict[str, list[tuple[str, str, dict[str, str]]]] = {
    "Health": [
        (
            "What is wrong",
            "short",
            {
                "only a start mends it": now("problems_ending"),
                "messages are refused": now("problems_refusing"),
                "all": now("problems"),
            },
        ),
        ("Connections", "short", {"open": now("connections"), "HTTP": now("connections_http")}),
        (
            "File descriptors",
            "percentunit",
            {"used": f"{now('descriptors')} / {now('descriptors_max')}"},
        ),
        (
            "Processor",
            "short",
            {"cores": f"rate(process_cpu_seconds_total{{{WHICH}}}[$__rate_interval])"},
        ),
        ("Memory", "bytes", {"resident": f"process_resident_memory_bytes{{{WHICH}}}"}),
        (
            "Nodes of the cluster",
            "short",
            {"known": now("cluster_nodes"), "alive": now("cluster_nodes_alive")},
        ),
    ],
    "Queues": [
        (
            "Messages of queues a second",
            "short",
            {
                "stored": rate("messages_stored"),
                "delivered": rate("messages_delivered"),
                "acknowledged": rate("messages_acknowledged"),
            },
        ),
        (
            "Commit of queues",
            "s",
            {
                "half": quantile(0.5, "queue_commit_seconds"),
                "99 of 100": quantile(0.99, "queue_commit_seconds"),
            },
        ),
        ("Queues", "short", {"all": now("queues"), "in memory": now("queues_live")}),
        ("Log of the queues", "bytes", {"length": now("queue_log_bytes")}),
        (
            "Refused and expired a second",
            "short",
            {
                "queue full": rate("messages_refused_by_quota"),
                "expired": rate("messages_expired"),
            },
        ),
        (
            "Lost or doubled by damage",
            "short",
            {"lost": now("messages_lost_total"), "doubled": now("messages_doubled_total")},
        ),
    ],
    "Topics and groups": [
        (
            "Messages of topics a second",
            "short",
            {
                "published": rate("topic_messages_published"),
                "delivered": rate("topic_messages_delivered"),
                "refused": rate("topic_messages_refused"),
            },
        ),
        (
            "Commit of streams",
            "s",
            {
                "half": quantile(0.5, "stream_commit_seconds"),
                "99 of 100": quantile(0.99, "stream_commit_seconds"),
            },
        ),
        ("What groups have not done", "short", {"lag": now("group_lag")}),
        (
            "Groups",
            "short",
            {"led here": now("groups_led"), "members": now("group_members")},
        ),
        (
            "Changes of leadership a second",
            "short",
            {"elections": rate("group_elections"), "fenced": rate("group_fenced")},
        ),
        (
            "Sessions",
            "short",
            {"of topics": now("topic_sessions"), "full": now("topic_windows_full")},
        ),
    ],
    "Services, records, values, MQTT": [
        (
            "Drift of services",
            "short",
            {
                "more": rate("service_drifts_more"),
                "fewer": rate("service_drifts_fewer"),
                "other": rate("service_drifts_other"),
            },
        ),
        (
            "Live tables",
            "short",
            {"tables": now("records_tables"), "subscriptions": now("records_subscriptions")},
        ),
        ("Resolver", "short", {"paths": now("resolver_paths"), "watches": now("resolver_watches")}),
        ("MQTT", "short", {"connections": now("mqtt_connections"), "clients": now("mqtt_clients")}),
        (
            "MQTT: refused and broken a second",
            "short",
            {"refused": rate("mqtt_refused"), "violations": rate("mqtt_violations")},
        ),
        ("WebSockets", "short", {"open": now("websockets")}),
    ],
    "Access": [
        (
            "Logins a second",
            "short",
            {"taken": rate("logins"), "refused": rate("logins_refused")},
        ),
        ("Calls denied a second", "short", {"denied": rate("calls_denied")}),
        (
            "Audit",
            "short",
            {"lines a second": rate("audit_lines"), "lost": now("audit_lost_total")},
        ),
    ],
}


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": y},
                "panels": [],
            }
        )
        y += 1
        for place, (name, unit, lines) in enumerate(row):
            x, below = place % 3 * WIDTH, place // 3 * HEIGHT
            panels.append(_panel(len(panels) + 1, name, unit, lines, x, y + below))
        y += (len(row) + 2) // 3 * HEIGHT
    return {
        "uid": "moorline-node",
        "title": "Moorline",
        "tags": ["moorline"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_prometheus(), _instances()]},
        "panels": panels,
    }


def _panel(
    number: int, title: str, unit: str, lines: dict[str, str], x: int, y: int
) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": source,
                "expr": query,
                "legendFormat": f"{{{{instance}}}} {legend}",
            }
            for place, (legend, query) in enumerate(lines.items())
        ],
    }


def _prometheus() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _instances() -> dict[str, Any]:
    """All nodes, unless some are chosen."""
    query = "label_values(moorline_node_info, instance)"
    return {
        "name": "instance",
        "label": "Node",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "definition": query,
        "query": {"query": query, "refId": "instances"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
