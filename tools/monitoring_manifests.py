"""Writer of the alert rules and the dashboard of deploy/ as manifests for Kubernetes and as values of the chart.

Kustomize and Helm read no file outside their own folders, so these have copies.

Run: ``python -m tools.monitoring_manifests`` (part of ``make docs``).
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

DEPLOY: Final = Path(__file__).parents[1] / "deploy"
_COMPONENT: Final = DEPLOY / "kubernetes" / "components" / "monitoring"
_HEAD: Final = "# Written by `python -m tools.monitoring_manifests`: change deploy/{source} instead.\n"
_RULES: Final = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: gateway}
spec:
"""
_DASHBOARD: Final = """\
# Grafana's sidecar for dashboards takes ConfigMaps with this label.
apiVersion: v1
kind: ConfigMap
metadata: {name: gateway-dashboard, labels: {grafana_dashboard: "1"}}
data:
  gateway.json: |
"""
_VALUES: Final = """\
# Written by `python -m tools.monitoring_manifests`: change deploy/prometheus/ or deploy/grafana/ instead.
monitoring:
  enabled: true
  rules:
"""


def documents() -> dict[Path, str]:
    """The content of each file."""
    return {
        _COMPONENT / "rules.yaml": _document(_RULES, "prometheus/rules.yml", 2),
        _COMPONENT / "dashboard.yaml": _document(_DASHBOARD, "grafana/dashboards/gateway.json", 4),
        DEPLOY / "helm" / "monitoring.yaml": "".join(
            [
                _VALUES,
                _indented("prometheus/rules.yml", 4),
                "  dashboard: |\n",
                _indented("grafana/dashboards/gateway.json", 4),
            ]
        ),
    }


def _document(head: str, source: str, indent: int) -> str:
    return _HEAD.format(source=source) + head + _indented(source, indent)


def _indented(source: str, indent: int) -> str:
    return textwrap.indent((DEPLOY / source).read_text(encoding="utf-8"), " " * indent)


if __name__ == "__main__":
    for file, content in documents().items():
        file.write_text(content, encoding="utf-8")
