"""The container, compose and Kubernetes files say what batchpod/README.md says and fit each other; no engine is needed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CONTAINER = ROOT / "container"
CONTEXTS = {CONTAINER / "Dockerfile": ROOT, CONTAINER / "results" / "Dockerfile": CONTAINER / "results"}


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """(instruction, arguments) in order; comments gone, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word]


def stages(dockerfile: Path) -> list[list[tuple[str, str]]]:
    """The instructions of each stage; the first entry is what stands before the first FROM."""
    found: list[list[tuple[str, str]]] = [[]]
    for word, rest in instructions(dockerfile):
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


def arguments(dockerfile: Path) -> dict[str, str]:
    """Build arguments and their defaults, an empty one where there is none."""
    pairs = (rest.partition("=") for word, rest in instructions(dockerfile) if word == "ARG")
    return {name: value for name, _, value in sorted(pairs)}


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((ROOT / "k8s" / name).read_text()))


COMPOSE: dict[str, Any] = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
FINAL = stages(CONTAINER / "Dockerfile")[-1]
JOB = documents("job.yaml")[0]
WARMUP = documents("warmup.yaml")[0]


# ------------------------------------------------------------------------------------------------ Dockerfiles


@pytest.mark.parametrize("dockerfile", CONTEXTS, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("transformers", ["4", "5"])
def test_every_copied_path_exists_and_reaches_the_build(dockerfile: Path, transformers: str) -> None:
    context = CONTEXTS[dockerfile]
    ignore = dockerfile.with_name("Dockerfile.dockerignore")
    ignore = ignore if ignore.exists() else context / ".dockerignore"
    allowed = [line[1:] for line in ignore.read_text().splitlines() if line.startswith("!")]
    for word, rest in instructions(dockerfile):
        if word == "COPY" and "--from" not in rest:
            for source in shlex.split(rest.replace("${TRANSFORMERS}", transformers))[:-1]:
                assert (context / source).exists(), source
                assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


def test_every_stage_that_is_copied_from_exists() -> None:
    for dockerfile in CONTEXTS:
        names = {rest.split(" AS ")[1] for word, rest in instructions(dockerfile) if word == "FROM" and " AS " in rest}
        used = {m[1] for word, rest in instructions(dockerfile) if (m := re.search(r"--from=(\S+)", rest))}
        assert used <= names


def test_the_pinned_htrflow_is_recorded_in_the_environment_and_as_a_label() -> None:
    defaults = [rest for word, rest in stages(CONTAINER / "Dockerfile")[0] if word == "ARG"]
    assert any(re.fullmatch("HTRFLOW_BASE_REVISION=[0-9a-f]{40}", rest) for rest in defaults)
    recorded = {word: rest for word, rest in FINAL if "${HTRFLOW_BASE_REVISION}" in rest}
    assert set(recorded) == {"ENV", "LABEL"}
    assert ("ARG", "HTRFLOW_BASE_REVISION") in FINAL


def test_the_final_stage_is_a_numeric_user_under_tini_that_writes_to_work_only() -> None:
    last = dict(FINAL)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last["USER"])
    assert json.loads(last["ENTRYPOINT"]) == ["tini", "--", "batchpod"]
    assert json.loads(last["CMD"]) == ["run"]
    environment = dict(pair.split("=", 1) for pair in shlex.split(last["ENV"]))
    assert environment["TORCH_DISABLE_NATIVE_JIT"] == "1"
    assert {environment[name] for name in ("HOME", "TMPDIR", "YOLO_CONFIG_DIR", "WORKDIR_PATH")} == {"/work"}


def test_the_final_stage_installs_no_compiler_and_holds_no_model_secret_or_cache() -> None:
    text = " ".join(rest for _, rest in FINAL)
    assert not re.search(r"\b(gcc|g\+\+|build-essential|clang|nvcc|\S+-dev)\b", text)
    assert not re.search(r"HF_HOME|HF_TOKEN|AWS_|\bpip install\b|tools/|HF_HUB", text)
    for word, rest in instructions(CONTAINER / "Dockerfile"):
        if word == "RUN" and "apt-get update" in rest:
            assert "rm -rf /var/lib/apt/lists/*" in rest
    assert "PIP_NO_CACHE_DIR=1" in (CONTAINER / "Dockerfile").read_text()


def test_everything_that_is_installed_from_an_index_is_locked_by_hashes() -> None:
    for word, rest in instructions(CONTAINER / "Dockerfile"):
        for command in re.findall(r"\binstall (?:--(?!no-install)[^&]*)", rest) if word == "RUN" else ():
            if not command.startswith("install --directory"):
                assert "--require-hashes" in command or "--no-index" in command, command


@pytest.mark.parametrize("dockerfile", CONTEXTS, ids=lambda path: path.parent.name)
def test_hadolint_finds_nothing(dockerfile: Path) -> None:
    hadolint = shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if hadolint is None:
        pytest.skip("hadolint is not installed: run `make setup`")
    done = subprocess.run([hadolint, "--no-color", str(dockerfile)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


# -------------------------------------------------------------------------------------------------- addresses


def test_no_file_names_the_host_of_a_package_or_image_registry() -> None:
    # Put together here, so that this file does not name one either.
    hosts = [
        "pypi" + ".org",
        "pythonhosted" + ".org",
        "npmjs" + ".org",
        "npmjs" + ".com",
        "docker" + ".io",
        "ghcr" + ".io",
    ]
    hosts += ["quay" + ".io", "nvcr" + ".io", "gcr" + ".io", "download.pytorch" + ".org", "hub.docker" + ".com"]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True
    )
    if listed.returncode:
        pytest.skip("this is no git checkout, so what belongs to the project is not known")
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        if path.is_file() and path.stat().st_size < 4_000_000:
            text = path.read_bytes()
            assert not [host for host in hosts if host.encode() in text], name


def test_images_have_plain_names_and_the_viewers_lock_no_addresses() -> None:
    images = [value for dockerfile in CONTEXTS for name, value in arguments(dockerfile).items() if "IMAGE" in name]
    images += [service["image"] for service in COMPOSE["services"].values() if "image" in service]
    for image in images:
        assert re.fullmatch(r"([a-z0-9-]+/)?[a-z0-9-]+(:[\w.-]+)?", image), image
    packages = json.loads((CONTAINER / "results" / "package-lock.json").read_text())["packages"]
    assert not [name for name, entry in packages.items() if "resolved" in entry]
    assert all("integrity" in entry for name, entry in packages.items() if name)


# ---------------------------------------------------------------------------------------------------- compose


def test_compose_builds_from_what_is_there_with_arguments_that_the_dockerfiles_have() -> None:
    for name, service in COMPOSE["services"].items():
        build = service.get("build")
        if build:
            context = CONTAINER / build["context"]
            dockerfile = (context / build.get("dockerfile", "Dockerfile")).resolve()
            assert dockerfile in CONTEXTS, name
            assert set(build.get("args", {})) <= set(arguments(dockerfile)), name
        for volume in service.get("volumes", []):
            source, _, mode = volume.split(":")
            assert (CONTAINER / source).exists(), volume
            assert mode == "ro", volume
        assert set(service.get("depends_on", {})) <= set(COMPOSE["services"])


def test_compose_runs_the_commands_and_files_of_this_repository() -> None:
    services = COMPOSE["services"]
    environment = services["batchpod"]["environment"]
    assert services["localstack"]["image"] == "localstack/localstack:4.7.0"
    assert services["localstack"]["environment"]["SERVICES"] == "s3"
    for name in ("PIPELINE_PATH", "HF_HOME"):
        assert (ROOT / environment[name].removeprefix("/demo/")).exists()
    assert (ROOT / services["origin"]["entrypoint"][5]).is_dir()
    maker = CONTAINER / "compose" / "make-bucket.sh"
    assert os.access(maker, os.X_OK)
    for bucket in (environment["S3_BUCKET"], services["results"]["environment"]["BUCKET"]):
        assert f"--bucket {bucket}" in maker.read_text()
        assert bucket in services["localstack"]["healthcheck"]["test"]


def test_every_service_waits_until_those_it_needs_answer() -> None:
    services = COMPOSE["services"]
    needed = {name: needs for service in services.values() for name, needs in service.get("depends_on", {}).items()}
    assert needed == {name: {"condition": "service_healthy"} for name in ("localstack", "origin", "results")}
    ports = {"origin": services["origin"]["entrypoint"][-1], "results": services["results"]["environment"]["LISTEN"]}
    for name in needed:
        check = services[name]["healthcheck"]["test"]
        assert check[0] == "CMD"
        assert name not in ports or f"http://127.0.0.1:{ports[name]}/" in check[-1]


def test_the_addresses_that_compose_publishes_are_those_that_a_browser_can_ask() -> None:
    services = COMPOSE["services"]
    environment, results = services["batchpod"]["environment"], services["results"]
    address = "http://localhost:" + results["ports"][0].split(":")[1]
    assert environment["RESULTS_URL"] == f"{address}/results"
    assert environment["IIIF_MANIFEST_URL"].startswith(f"{address}/iiif/")
    assert services["batchpod"]["network_mode"] == "service:results"
    assert results["environment"]["VOLUME"] == f"{environment['PIPELINE_ID']}/{environment['VOLUME_REF']}"


def test_the_page_template_has_no_variable_that_compose_does_not_set() -> None:
    template = (CONTAINER / "results" / "nginx.conf.template").read_text()
    assert set(re.findall(r"\$\{(\w+)\}", template)) == set(COMPOSE["services"]["results"]["environment"])


# ------------------------------------------------------------------------------------------------- Kubernetes


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def test_a_batch_is_an_indexed_job_in_which_no_volume_stops_another() -> None:
    spec = JOB["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["maxFailedIndexes"] == spec["completions"]
    assert spec["backoffLimitPerIndex"] == 3
    assert spec["ttlSecondsAfterFinished"] == 604800
    assert JOB["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]


def test_the_failure_policy_ignores_disruptions_then_gives_up_an_index_on_13() -> None:
    rules = JOB["spec"]["podFailurePolicy"]["rules"]
    assert rules[0] == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert [(rule["action"], rule["onExitCodes"]) for rule in rules[1:]] == [
        ("FailIndex", {"containerName": name, "operator": "In", "values": [13]}) for name in ("batchpod", "warmup-wait")
    ]
    pod = JOB["spec"]["template"]["spec"]
    assert {c["name"] for c in pod["containers"] + pod["initContainers"]} == {"batchpod", "warmup-wait"}


@pytest.mark.parametrize("job", [JOB, WARMUP], ids=["batch", "warmup"])
def test_pods_are_confined(job: dict[str, Any]) -> None:
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    user = next(rest for word, rest in FINAL if word == "USER")
    assert user == f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    for container in pod["containers"] + pod.get("initContainers", []):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["work"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "2Gi"}
    environment = variables(pod["containers"][0])
    assert {environment[name] for name in ("HOME", "TMPDIR", "YOLO_CONFIG_DIR")} == {"/work"}


def test_a_batch_pod_has_its_deadlines_probe_and_read_only_cache() -> None:
    pod = JOB["spec"]["template"]["spec"]
    assert (pod["activeDeadlineSeconds"], pod["terminationGracePeriodSeconds"]) == (21600, 120)
    container = pod["containers"][0]
    probe = container["livenessProbe"]
    assert probe["exec"]["command"] == ["batchpod-debug", "ping"]
    assert (probe["initialDelaySeconds"], probe["periodSeconds"], probe["failureThreshold"]) == (60, 30, 3)
    environment: dict[str, Any] = variables(container)
    path = "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"
    assert environment["INDEX_FAILURE_COUNT"] == {"fieldRef": {"fieldPath": path}}
    assert environment["BACKOFF_LIMIT_PER_INDEX"] == str(JOB["spec"]["backoffLimitPerIndex"])
    assert environment["HF_HUB_OFFLINE"] == "1"
    for each in (container, pod["initContainers"][0]):
        cache = next(mount for mount in each["volumeMounts"] if mount["name"] == "cache")
        assert cache["readOnly"] is True
        assert re.fullmatch(rf"{environment['PIPELINE_ID']}-[0-9a-f]+", cache["subPath"])
        assert environment["HF_HOME"].startswith(cache["mountPath"] + "/")


def test_the_warm_up_writes_the_cache_without_a_gpu_the_store_or_a_queue() -> None:
    spec, pod = WARMUP["spec"], WARMUP["spec"]["template"]["spec"]
    assert spec["backoffLimit"] == 2
    assert pod["activeDeadlineSeconds"] == 3600
    rule = {"containerName": "warmup", "operator": "In", "values": [13]}
    assert spec["podFailurePolicy"]["rules"] == [{"action": "FailJob", "onExitCodes": rule}]
    assert "ttlSecondsAfterFinished" not in spec
    assert not [label for label in WARMUP["metadata"]["labels"] if "kueue" in label]
    container = pod["containers"][0]
    environment = variables(container)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert "HF_HUB_OFFLINE" not in environment
    assert not [name for name in environment if name.startswith(("AWS_", "S3_"))]
    assert "s3" not in {volume["name"] for volume in pod["volumes"]}
    cache = next(mount for mount in container["volumeMounts"] if mount["name"] == "cache")
    batch = JOB["spec"]["template"]["spec"]["containers"][0]
    assert not cache.get("readOnly")
    assert cache["subPath"] == next(m["subPath"] for m in batch["volumeMounts"] if m["name"] == "cache")
    assert environment["HF_HOME"] == variables(batch)["HF_HOME"]


def test_network_policies_select_the_pods_and_open_only_what_each_needs() -> None:
    policies = {policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: policy["spec"]
                for policy in documents("networkpolicies.yaml")}  # fmt: skip
    for job in (JOB, WARMUP):
        labels = job["spec"]["template"]["metadata"]["labels"]
        spec = policies[labels["app.kubernetes.io/component"]]
        assert spec["podSelector"]["matchLabels"].items() <= labels.items()
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert spec["ingress"] == []
        assert {port["port"] for port in spec["egress"][0]["ports"]} == {53}
    [_, public] = policies["warmup"]["egress"]
    assert public["ports"] == [{"port": 443, "protocol": "TCP"}]
    assert {"10.0.0.0/8", "169.254.0.0/16", "192.168.0.0/16"} <= set(public["to"][0]["ipBlock"]["except"])
    assert not [
        to
        for rule in policies["batch"]["egress"]
        for to in rule["to"]
        if to.get("ipBlock", {}).get("cidr") == "0.0.0.0/0"
    ]
