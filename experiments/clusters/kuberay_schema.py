"""Check `kuberay.yaml` by schemas, without a cluster: `python -m experiments.clusters.kuberay_schema`.

The pods of head and workers are checked as Kubernetes' own pods, strictly: an unknown key is an error. The keys of the
RayCluster around them are checked against a part of the schema of KubeRay's RayCluster (`ray.io/v1`, custom resource
definition of version 1.5), which no package carries.

Needs `pip install kubernetes-validate`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

RECIPE = Path(__file__).parent / "kuberay.yaml"
KUBERNETES = "1.34"
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_COUNT = {"type": "integer", "minimum": 0}
_GROUP = {"rayStartParams": _TEXTS, "template": {"type": "object"}}
RAY_CLUSTER = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayCluster"},
        "spec": {
            "type": "object",
            "required": ["headGroupSpec"],
            "additionalProperties": False,
            "properties": {
                "rayVersion": {"type": "string"},
                "authOptions": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"mode": {"enum": ["disabled", "token"]}},
                },
                "headGroupSpec": {
                    "type": "object",
                    "required": ["rayStartParams", "template"],
                    "additionalProperties": False,
                    "properties": _GROUP,
                },
                "workerGroupSpecs": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"],
                        "additionalProperties": False,
                        "properties": {
                            "groupName": {"type": "string"},
                            "replicas": _COUNT,
                            "minReplicas": _COUNT,
                            "maxReplicas": _COUNT,
                            **_GROUP,
                        },
                    },
                },
            },
        },
    },
}


def pods(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod of the head, then one of each group of workers."""
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"].get("workerGroupSpecs", [])]
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, **group["template"]}
        for number, group in enumerate(groups)
    ]


if __name__ == "__main__":
    try:
        import jsonschema
        import kubernetes_validate
    except ImportError as missing:
        sys.exit(f"not run: {missing}; pip install kubernetes-validate")
    cluster = yaml.safe_load(RECIPE.read_text())
    jsonschema.validate(cluster, RAY_CLUSTER)
    for pod in pods(cluster):
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    print(f"{RECIPE.name}: a RayCluster by its keys, and {len(pods(cluster))} pods of Kubernetes {KUBERNETES}")
