"""`make kubernetes`, what schemas of Kubernetes do not see: CHART_OUTPUT CRDS RESOURCES.

CHART_OUTPUT is what Dagster's chart makes of our values: Dagster has to load the settings in it,
and they have to say what `deploy/dagster.yaml` says. CRDS are custom resource definitions,
RESOURCES ours of these kinds: each has to be what its definition's schema says, without other keys.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from dagster import DagsterInstance
from dagster._config import process_config
from dagster._core.instance.ref import InstanceRef
from dagster._core.test_utils import create_run_for_test
from dagster_k8s import K8sRunLauncher
from dagster_k8s.job import UserDefinedDagsterK8sConfig, construct_dagster_k8s_job
from kubernetes.client import ApiClient

OURS = Path(__file__).resolve().parents[2] / "deploy/dagster.yaml"


def closed(schema: Any) -> Any:
    """A structural schema of Kubernetes as one that refuses keys which it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: {name: closed(one) for name, one in value.items()}
        if key == "properties"
        else closed(value)
        for key, value in schema.items()
    }
    if "properties" in made and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def differences(resource: dict[str, Any], definitions: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What a custom resource has that its definition does not know, or the other way round."""
    group, _, version = resource["apiVersion"].partition("/")
    for definition in definitions:
        spec = definition["spec"]
        if (spec["group"], spec["names"]["kind"]) == (group, resource["kind"]):
            for served in spec["versions"]:
                if served["name"] == version and served["served"]:
                    schema = closed(served["schema"]["openAPIV3Schema"])
                    # these the server knows by itself
                    rest = {
                        key: value
                        for key, value in resource.items()
                        if key not in {"apiVersion", "kind", "metadata"}
                    }
                    for error in jsonschema.Draft202012Validator(schema).iter_errors(rest):
                        yield f"{error.json_path}: {error.message}"
                    return
    yield f"no definition of {resource['kind']} in {resource['apiVersion']}"


def instance_differences(rendered: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Settings of `deploy/dagster.yaml` that Dagster would not have in the chart's pods."""
    (text,) = [
        one["data"]["dagster.yaml"]
        for one in rendered
        if one["kind"] == "ConfigMap" and "dagster.yaml" in (one["data"] or {})
    ]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "dagster.yaml").write_text(text)
        # Dagster's own check of names and types
        reference = InstanceRef.from_dir(folder)
    reference.run_coordinator_data.rehydrate(as_type=object)
    told, found = yaml.safe_load(OURS.read_text()), yaml.safe_load(text)
    ours = told.pop("storage")["postgres"]["postgres_db"]
    for name in ("run_storage", "event_log_storage", "schedule_storage"):
        theirs = found[name]["config"]["postgres_db"]
        if theirs["scheme"] != ours["scheme"]:
            yield f"{name}: scheme is {theirs['scheme']}"
    # the chart spells Dagster's modules in full
    told["run_coordinator"].pop("module")
    # containers there, pods here
    told.pop("run_launcher")
    yield from launcher_errors(found["run_launcher"])
    yield from _missing(told, found, "dagster.yaml")


def launcher_errors(told: dict[str, Any]) -> Iterator[str]:
    """What Dagster's launcher of pods would not take."""
    if (told["module"], told["class"]) != ("dagster_k8s", "K8sRunLauncher"):
        yield f"runs are launched by {told}"
        return
    checked = process_config(K8sRunLauncher.config_type(), told["config"])
    yield from (error.message for error in checked.errors or ())
    try:
        UserDefinedDagsterK8sConfig.from_dict(told["config"].get("run_k8s_config", {}))
    except Exception as error:  # noqa: BLE001 - whatever Kubernetes' models raise
        yield f"run_k8s_config: {error}"


def run_pod(config: dict[str, Any]) -> dict[str, Any]:
    """The pod of a run, as the launcher makes it of its settings."""
    user = {"name": "x", "user": {}}
    cluster = {"name": "x", "cluster": {"server": "https://localhost"}}
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as kube:
        told = {"clusters": [cluster], "contexts": [context], "users": [user]}
        yaml.safe_dump({**told, "current-context": "x"}, kube)
        kube.flush()
        own = {**config, "load_incluster_config": False, "kubeconfig_file": kube.name}
        launcher = K8sRunLauncher(**own)
    run = create_run_for_test(DagsterInstance.ephemeral(), job_name="ingest")
    made = launcher.get_container_context_for_run(run)
    job = construct_dagster_k8s_job(
        job_config=made.get_k8s_job_config(job_image="lakehouse:local", run_launcher=launcher),
        args=["dagster"],
        job_name="run",
        pod_name="run",
        component="run_worker",
        user_defined_k8s_config=made.run_k8s_config,
    )
    pod: dict[str, Any] = ApiClient().sanitize_for_serialization(job.spec.template.spec)
    return pod


def _missing(wanted: Any, found: Any, place: str) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            yield from _missing(value, found.get(key), f"{place}.{key}")
    elif wanted != found:
        yield f"{place}: {found!r} instead of {wanted!r}"


def main(chart_output: str, crds: str, *resources: str) -> int:
    found = [
        f"{chart_output}: {difference}"
        for difference in instance_differences(_documents(chart_output))
    ]
    definitions = _documents(crds)
    for path in resources:
        for resource in _documents(path):
            found += [f"{path}: {difference}" for difference in differences(resource, definitions)]
    sys.stdout.write("\n".join(found or ["Dagster's settings, custom resources: no difference"]))
    sys.stdout.write("\n")
    return 1 if found else 0


def _documents(path: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(Path(path).read_text()) if one]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
