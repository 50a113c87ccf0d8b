"""deploy/kubernetes says what docker-compose.yml says: the same commands, settings and checks."""

from __future__ import annotations

import re
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.conformance.kubernetes import differences, launcher_errors, run_pod

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = {
    name: one
    for name, one in yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].items()
    if "profiles" not in one or name == "metrics"
}
VALUES = yaml.safe_load((ROOT / "deploy/kubernetes/dagster-values.yaml").read_text())
WATCH = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/watch.yaml").read_text()))
MADE = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/lakehouse.yaml").read_text())) + [
    one for one in WATCH if not one["apiVersion"].startswith("monitoring")
]
SETTINGS = next(one["data"] for one in MADE if one["metadata"]["name"] == "lakehouse")
PODS = {
    one["metadata"]["name"]: one["spec"]["template"]["spec"]
    for one in MADE
    if "template" in one.get("spec", {})
}
OF_DAGSTER = {"migrate", "code", "webserver", "daemon"}
# `kubectl create secret` of docs/kubernetes.md
SECRETS = {
    "postgres": {"POSTGRES_PASSWORD"},
    "lakehouse": {"PGPASSWORD"},
    "store": {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"},
    "spark": {"_SPARK_AUTH_SECRET"},
    "dagster-postgresql-secret": {"postgresql-password"},
}
(CODE,) = VALUES["dagster-user-deployments"]["deployments"]
LAUNCHER = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
# the same pods by Apache's Spark operator
CLUSTER = yaml.safe_load((ROOT / "deploy/kubernetes/spark-cluster.yaml").read_text())
OPERATED = {
    f"spark-{part}": CLUSTER["spec"][f"{part}Spec"]["statefulSetSpec"]["template"]
    for part in ("master", "worker")
}


def test_every_service_is_here_or_in_dagsters_chart():
    # Kubernetes itself starts the pods of runs
    assert set(PODS) | OF_DAGSTER == set(COMPOSE) - {"engine"}
    assert not set(PODS) & OF_DAGSTER
    replicas = {one["metadata"]["name"]: one["spec"].get("replicas", 1) for one in MADE[1:]
                if one["kind"] == "Deployment"}  # fmt: skip
    assert replicas == {
        name: COMPOSE[name].get("deploy", {}).get("replicas", 1) for name in replicas
    }


@pytest.mark.parametrize("name", sorted(PODS))
def test_commands_ports_images_and_health_checks_are_those_of_compose(name):
    told, (container,) = COMPOSE[name], PODS[name]["containers"]
    command = told.get("command")
    if command is not None and "--tell" in command:  # where clients on the host find the store
        command = command[: command.index("--tell")]
    assert container.get("args") == command
    assert container["image"] == told["image"]
    ports = [str(one["containerPort"]) for one in container.get("ports", ())]
    assert ports == told.get("expose", [])
    kind, *test = told.get("healthcheck", {}).get("test", ["CMD"])
    wanted = ["sh", "-c", *test] if kind == "CMD-SHELL" else test
    probe = container.get("readinessProbe", {"exec": {"command": []}})
    assert probe["exec"]["command"] == wanted
    for ours, theirs in (("periodSeconds", "interval"), ("timeoutSeconds", "timeout")):
        assert f"{probe.get(ours)}s" == told.get("healthcheck", {}).get(theirs, "Nones")


@pytest.mark.parametrize("name", sorted(PODS))
def test_services_have_the_names_and_ports_that_others_ask_for(name):
    found = [one for one in MADE if one["kind"] == "Service" and one["metadata"]["name"] == name]
    asked = COMPOSE[name].get("expose") if name != "spark-worker" else None
    if not asked:
        assert found == []
        return
    (service,) = found
    assert [str(port["port"]) for port in service["spec"]["ports"]] == asked
    assert service["spec"]["selector"] == {"app": name}


@pytest.mark.parametrize("name", sorted(PODS))
def test_settings_are_those_of_compose(name):
    """A pod's own, those of the ConfigMap and the names in its Secrets: no secret too many."""
    (container,) = PODS[name]["containers"]
    own = {one["name"]: one.get("value", "secret") for one in container.get("env", ())}
    wanted = {
        key: "secret" if str(value).startswith("${") else str(value)
        for key, value in COMPOSE[name]["environment"].items()
    }
    for source in container.get("envFrom", ()):
        ((kind, named),) = source.items()
        if kind == "secretRef":
            own |= dict.fromkeys(SECRETS[named["name"]], "secret")
        else:  # what is no secret, all have
            own |= SETTINGS
            wanted = SETTINGS | wanted | {"LAKEHOUSE_LANDING": SETTINGS["LAKEHOUSE_LANDING"]}
    own.pop("SPARK_LOCAL_HOSTNAME", None)
    assert own == wanted


def test_settings_of_the_code_location_are_those_of_compose():
    """Of them files land elsewhere: several pods read them."""
    run = COMPOSE["engine"]["environment"]
    assert {key: run[key] for key in SETTINGS} == SETTINGS | {"LAKEHOUSE_LANDING": "/data/landing"}
    for name, part in (("code", CODE), ("engine", LAUNCHER)):
        assert part["envConfigMaps"] == [{"name": "lakehouse"}]
        given = {key for one in part["envSecrets"] for key in SECRETS[one["name"]]}
        told = COMPOSE[name]["environment"].items()
        hidden = {key for key, value in told if str(value).startswith("${")}
        assert given == hidden - {"DAGSTER_POSTGRES_PASSWORD"}  # which the chart hands out
    for part in (VALUES["dagsterWebserver"], VALUES["dagsterDaemon"]):
        assert not {"envConfigMaps", "envSecrets"} & part.keys()


@pytest.mark.parametrize("name", sorted(PODS))
def test_pods_run_as_a_user_without_rights_within_limits(name):
    pod = PODS[name]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == rights
    assert container["resources"]["limits"]["memory"]
    assert ("livenessProbe" in container) == ("readinessProbe" in container)
    if "livenessProbe" in container:  # it asks the same, and is more patient
        probes = [container[f"{kind}Probe"] for kind in ("liveness", "readiness")]
        assert probes[0]["exec"] == probes[1]["exec"]
        waits = [probe["periodSeconds"] * probe["failureThreshold"] for probe in probes]
        assert waits[0] >= waits[1]


def test_dagsters_pods_run_as_a_user_without_rights():
    for part in (CODE, VALUES["dagsterWebserver"], VALUES["dagsterDaemon"]):
        assert part["podSecurityContext"] == PODS["rest"]["securityContext"]
        assert part["securityContext"] == PODS["rest"]["containers"][0]["securityContext"]
        assert part["resources"]["limits"]["memory"]


def test_prometheus_scrapes_what_it_does_under_compose():
    """Each pod at its port and path, and the same rules."""
    told = yaml.safe_load((ROOT / "deploy/watch/prometheus.yml").read_text())
    scraped = {one["job_name"]: one for one in told["scrape_configs"]}
    monitors = {
        one["metadata"]["name"]: one["spec"] for one in WATCH if one["kind"] == "PodMonitor"
    }
    assert monitors.keys() == scraped.keys()
    for name, spec in monitors.items():
        assert spec["selector"] == {"matchLabels": {"app": name}}
        (endpoint,) = spec["podMetricsEndpoints"]
        assert {"containerPort": endpoint["portNumber"]} in PODS[name]["containers"][0]["ports"]
        assert endpoint.get("path") == scraped[name].get("metrics_path")
        usual = told["global"]["scrape_interval"]
        assert endpoint["interval"] == scraped[name].get("scrape_interval", usual)
        assert endpoint.get("scrapeTimeout") == scraped[name].get("scrape_timeout")
    (rules,) = (one["spec"] for one in WATCH if one["kind"] == "PrometheusRule")
    assert rules == yaml.safe_load((ROOT / "deploy/watch/alerts.yml").read_text())


def test_the_databases_are_made_as_under_compose():
    (made,) = (one for one in MADE if one["metadata"]["name"] == "create-databases")
    assert list(made["data"].values()) == [(ROOT / "deploy/create-databases.sql").read_text()]


@pytest.mark.parametrize("name", sorted(PODS))
def test_no_pod_has_the_links_that_spark_would_take_for_settings(name):
    assert PODS[name]["enableServiceLinks"] is False


def test_secrets_are_referred_to_by_the_names_that_the_page_creates():
    page = (ROOT / "docs/kubernetes.md").read_text().replace("\\\n", " ")
    created = {
        name: set(re.findall(r"--from-literal=([A-Za-z_-]+)=", rest))
        for name, rest in re.findall(r"create secret generic (\S+) (.+)", page)
    }
    assert created == SECRETS
    for pod in PODS.values():
        for container in pod["containers"]:
            for one in container.get("env", ()):
                if "secretKeyRef" in one.get("valueFrom", {}):
                    reference = one["valueFrom"]["secretKeyRef"]
                    assert reference["key"] in SECRETS[reference["name"]]


def test_dagsters_commands_and_ports_are_those_of_compose():
    """The chart puts its own words before `codeServerArgs`."""
    start = ["dagster", "code-server", "start", "-h", "0.0.0.0", "-p", str(CODE["port"])]  # noqa: S104
    assert [*start, *CODE["codeServerArgs"]] == COMPOSE["code"]["command"]
    service = VALUES["dagsterWebserver"]["service"]
    assert [str(service["port"])] == COMPOSE["webserver"]["expose"]
    probe = VALUES["dagsterWebserver"]["readinessProbe"]["httpGet"]
    assert f":{probe['port']}{probe['path']}" in COMPOSE["webserver"]["healthcheck"]["test"][-1]
    for part in (CODE, VALUES["dagsterWebserver"], VALUES["dagsterDaemon"]):
        image = part["image"]
        assert f"{image['repository']}:{image['tag']}" == COMPOSE["code"]["image"]
    assert VALUES["migrate"]["enabled"]


def test_dagsters_settings_are_those_of_its_file_under_compose():
    told = yaml.safe_load((ROOT / "deploy/dagster.yaml").read_text())
    database, daemon = told["storage"]["postgres"]["postgres_db"], VALUES["dagsterDaemon"]
    environment = COMPOSE["code"]["environment"]
    postgresql = VALUES["postgresql"]
    assert postgresql["postgresqlScheme"] == database["scheme"]
    for key, variable in (
        ("postgresqlHost", database["hostname"]["env"]),
        ("postgresqlDatabase", database["db_name"]["env"]),
        ("postgresqlUsername", database["username"]["env"]),
    ):
        assert postgresql[key] == environment[variable]
    assert str(postgresql["service"]["port"]) == environment[database["port"]["env"]]
    assert f"postgres:{postgresql['image']['tag']}" == COMPOSE["postgres"]["image"]
    coordinator = daemon["runCoordinator"]
    assert coordinator["type"] == told["run_coordinator"]["class"]
    assert snake(coordinator["config"]["queuedRunCoordinator"]) == told["run_coordinator"]["config"]
    assert snake(daemon["runMonitoring"]) == told["run_monitoring"]
    assert snake(daemon["runRetries"]) == told["run_retries"]
    concurrency = dict(VALUES["concurrency"])
    assert concurrency.pop("enabled")
    assert snake(concurrency) == told["concurrency"]
    assert VALUES["telemetry"] == told["telemetry"]
    more = {"nux", "freshness"}
    assert VALUES["additionalInstanceConfig"] == {key: told[key] for key in more}
    spelled = {"storage", "run_coordinator", "run_monitoring", "run_retries", "concurrency"}
    left = more | {"telemetry", "run_launcher"}
    assert set(told) == spelled | left, "the values have to say it, too"


def test_runs_are_pods_as_they_are_containers_of_compose():
    """Dagster's own launcher makes the pod, of what the chart makes of the values: snake case."""
    plain = {key: [one["name"] for one in LAUNCHER[key]] for key in ("envConfigMaps", "envSecrets")}
    config = {**snake({**LAUNCHER, **plain}), "instance_config_map": "x", "dagster_home": "/x"}
    config |= {"postgres_password_secret": "x", "service_account_name": "dagster"}
    told = {"module": "dagster_k8s", "class": VALUES["runLauncher"]["type"], "config": config}
    assert list(launcher_errors(told)) == []
    assert list(launcher_errors({**told, "config": {**config, "memory": "3Gi"}})) != []
    pod, (container,) = run_pod(config), run_pod(config)["containers"]
    assert pod["securityContext"] == PODS["rest"]["securityContext"]
    assert pod["enableServiceLinks"] is False
    assert container["securityContext"] == PODS["rest"]["containers"][0]["securityContext"]
    engine = dict(pairwise(COMPOSE["engine"]["command"]))
    memory = container["resources"]["limits"]["memory"]
    assert memory == f"{int(engine['--memory']) >> 30}Gi"
    # else the chart lets the code server's limits take the place of these
    assert CODE["includeConfigInLaunchedRuns"] == {"enabled": False}


@pytest.mark.parametrize("name", sorted(OPERATED))
def test_pods_of_the_spark_operator_are_those_of_the_deployments(name):
    """It names containers, and adds the image, ports and words behind the command by itself."""
    ours, deployed = OPERATED[name], PODS[name]
    assert ours["metadata"] == {"labels": {"app": name}}
    (container,), (wanted,) = ours["spec"]["containers"], deployed["containers"]
    *shell, text = container["command"]
    assert shell == ["sh", "-c"]
    assert shlex.split(text) == ["exec", *COMPOSE[name]["command"]]
    assert container["name"] == name.removeprefix("spark-")
    by_operator = {"name", "image", "args", "ports"}
    assert container == {
        **{key: value for key, value in wanted.items() if key not in by_operator},
        "name": container["name"],
        "command": container["command"],
    }
    assert {**ours["spec"], "containers": []} == {**deployed, "containers": []}


def test_the_spark_operators_cluster_has_the_image_version_and_workers_of_compose():
    spec = CLUSTER["spec"]
    assert spec["sparkConf"]["spark.kubernetes.container.image"] == COMPOSE["code"]["image"]
    replicas = COMPOSE["spark-worker"]["deploy"]["replicas"]
    assert set(spec["clusterTolerations"]["instanceConfig"].values()) == {replicas}
    locked = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    (pyspark,) = [one["version"] for one in locked if one["name"] == "pyspark"]
    assert spec["runtimeVersions"] == {"sparkVersion": pyspark}
    name = CLUSTER["metadata"]["name"]
    assert LAUNCHER["labels"] == {"spark.operator/spark-cluster-name": name}


def test_the_spark_operator_looks_after_the_namespace_of_the_page():
    values = yaml.safe_load((ROOT / "deploy/kubernetes/spark-operator-values.yaml").read_text())
    (namespace,) = values["workloadResources"]["namespaces"]["data"]
    assert f"kubectl create namespace {namespace}" in (ROOT / "docs/kubernetes.md").read_text()


def test_keys_that_a_definition_does_not_know_are_found():
    properties = {"count": {"type": "integer"}, "free": {"type": "object"}}
    schema = {"properties": {"spec": {"type": "object", "properties": properties}}}
    version = {"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "example.com", "names": {"kind": "Thing"}, "versions": [version]}
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}}
    fine = {**thing, "spec": {"count": 1, "free": {"any": "key"}}}
    assert list(differences(fine, [{"spec": spec}])) == []
    (wrong,) = differences({**thing, "spec": {"count": "1"}}, [{"spec": spec}])
    assert "spec.count" in wrong
    (unknown,) = differences({**thing, "spec": {"counts": 1}}, [{"spec": spec}])
    assert "'counts' was unexpected" in unknown
    (missing,) = differences({**thing, "apiVersion": "example.com/v2"}, [{"spec": spec}])
    assert missing == "no definition of Thing in example.com/v2"


def snake(value):
    if not isinstance(value, dict):
        return value
    return {
        re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), key): snake(one)
        for key, one in value.items()
    }
