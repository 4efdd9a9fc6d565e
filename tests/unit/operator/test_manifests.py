"""Every object of a pool: names, owner, Pod Security, and what reaches the command line."""

from typing import Any

import pytest

from support.pod_security import restricted_violations
from tokenpool_api import names
from tokenpool_api.spec import TokenPoolSpec
from tokenpool_operator.manifests import event, shard, standing
from tokenpool_operator.manifests.metadata import Owner

Raw = dict[str, Any]
SOURCES = ["hf://org/name", "pvc://claim/sub/path", "file:///model", "oci://registry/model:1"]


def parse(spec: Raw | None = None, source: str = "file:///model") -> TokenPoolSpec:
    return TokenPoolSpec.model_validate({"model": {"source": source}, "shards": {"min": 3}} | (spec or {}))


def objects(owner: Owner, spec: TokenPoolSpec, desired: int = 3) -> dict[tuple[str, str], Raw]:
    found = standing.standing_objects(owner, spec, desired, router_image="router:1", hf_endpoint=None)
    return {(item["kind"], item["metadata"]["name"]): item for item in found}


def pod_spec(spec: TokenPoolSpec, hf_endpoint: str | None = None) -> Raw:
    return shard.shard_pod_spec("chat", spec, "engine:1", hf_endpoint)


@pytest.mark.parametrize("source", SOURCES)
def test_shards_are_restricted(source: str) -> None:
    assert list(restricted_violations(pod_spec(parse(source=source)))) == []


def test_routers_are_restricted(owner: Owner) -> None:
    deployment = objects(owner, parse())["Deployment", "chat-router"]
    assert list(restricted_violations(deployment["spec"]["template"]["spec"])) == []


def test_the_checker_sees_a_bad_pod() -> None:
    bad = {"hostNetwork": True, "volumes": [{"name": "x", "hostPath": {}}], "containers": [{"name": "c"}]}
    assert len(list(restricted_violations(bad))) == 7


def test_the_whole_set(owner: Owner) -> None:
    assert list(objects(owner, parse())) == [
        ("ServiceAccount", "chat-shards"),
        ("ServiceAccount", "chat-router"),
        ("Role", "chat-router"),
        ("RoleBinding", "chat-router"),
        ("NetworkPolicy", "chat-shards"),
        ("NetworkPolicy", "chat-router"),
        ("Service", "chat-shards"),
        ("Service", "chat"),
        ("PodDisruptionBudget", "chat-shards"),
        ("Deployment", "chat-router"),
    ]


def test_everything_is_owned_and_labelled(owner: Owner) -> None:
    pod = shard.shard_pod(owner, pod_spec(parse()), "aaaaaaaa", 0)
    for item in [pod, *objects(owner, parse()).values()]:
        assert item["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "tokenpool.dev/v1alpha1",
                "kind": "TokenPool",
                "name": "chat",
                "uid": "uid-of-chat",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        assert item["metadata"]["namespace"] == "team-a"
        assert item["metadata"]["labels"][names.LABEL_POOL] == "chat"
        assert item["metadata"]["labels"][names.LABEL_MANAGED_BY] == "tokenpool-operator"


def test_a_shard_pod(owner: Owner) -> None:
    pod = shard.shard_pod(owner, pod_spec(parse()), "aaaaaaaa", 7)
    assert pod["metadata"]["name"] == "chat-aaaaaaaa-7"
    assert pod["metadata"]["labels"] == {
        "app.kubernetes.io/name": "tokenpool",
        "app.kubernetes.io/managed-by": "tokenpool-operator",
        "app.kubernetes.io/component": "shard",
        "tokenpool.dev/pool": "chat",
        "tokenpool.dev/revision": "aaaaaaaa",
        "tokenpool.dev/ordinal": "7",
    }
    spec = pod["spec"]
    assert spec["serviceAccountName"] == "chat-shards"
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 5 + 120 + 10
    engine = spec["containers"][0]
    assert engine["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    assert engine["terminationMessagePolicy"] == "FallbackToLogsOnError"
    startup = engine["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 1800
    readiness = engine["readinessProbe"]
    assert (readiness["httpGet"]["path"], readiness["periodSeconds"]) == ("/readyz", 2)
    assert engine["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "admin"}


def test_the_command_line_says_only_what_was_asked() -> None:
    assert shard.engine_args("chat", parse(), "/model") == [
        "serve", "--model", "/model", "--served-name", "chat", "--max-sequences", "64", "--dtype", "auto",
        "--drain-seconds", "120",
    ]  # fmt: skip


def test_the_whole_command_line() -> None:
    shards = {"tokenBudget": 512, "maxSequences": 8, "maxModelLength": 2048, "kvCacheTokens": 8192}
    shards |= {"threads": 2, "tensorParallel": 4, "quantization": "int8"}
    shards |= {"performance": {"matmulPrecision": "medium", "cudnnBenchmark": True, "cudaGraphs": False}}
    spec = parse(
        {
            "model": {"source": "file:///model", "servedName": "smol"},
            "shards": {"min": 1, "dtype": "bfloat16", **shards},
            "rollout": {"drainSeconds": 0, "terminationGraceSeconds": 15},
        }
    )
    assert " ".join(shard.engine_args("chat", spec, "/model")) == (
        "serve --model /model --served-name smol --token-budget 512 --max-sequences 8 --max-model-length 2048 "
        "--kv-cache-tokens 8192 --dtype bfloat16 --quantization int8 --threads 2 --tensor-parallel 4 "
        "--matmul-precision medium --drain-seconds 0 --cudnn-benchmark --no-cuda-graphs"
    )
    assert pod_spec(spec)["terminationGracePeriodSeconds"] == 15


def test_ranks_have_shared_memory() -> None:
    spec = pod_spec(parse({"shards": {"min": 1, "tensorParallel": 2}}))
    [volume] = [volume for volume in spec["volumes"] if volume["name"] == "shm"]
    assert volume["emptyDir"] == {"medium": "Memory"}
    assert {"name": "shm", "mountPath": "/dev/shm"} in spec["containers"][0]["volumeMounts"]


@pytest.mark.parametrize(
    ("source", "path", "volume"),
    [
        ("hf://org/name", "/models/hf", {"name": "models", "emptyDir": {}}),
        (
            "pvc://claim/sub/path",
            "/models/sub/path",
            {"name": "models", "persistentVolumeClaim": {"claimName": "claim", "readOnly": True}},
        ),
        (
            "pvc://claim",
            "/models",
            {"name": "models", "persistentVolumeClaim": {"claimName": "claim", "readOnly": True}},
        ),
        ("file:///opt/model", "/opt/model", None),
        (
            "oci://host/model:1",
            "/models",
            {"name": "models", "image": {"reference": "host/model:1", "pullPolicy": "IfNotPresent"}},
        ),
    ],
)
def test_where_the_model_is(source: str, path: str, volume: Raw | None) -> None:
    spec = pod_spec(parse(source=source))
    engine = spec["containers"][0]
    assert engine["args"][:3] == ["serve", "--model", path]
    assert [item for item in spec["volumes"] if item["name"] == "models"] == ([volume] if volume else [])
    mounts = [mount for mount in engine["volumeMounts"] if mount["name"] == "models"]
    assert mounts == ([{"name": "models", "mountPath": "/models", "readOnly": True}] if volume else [])
    assert ("initContainers" in spec) == source.startswith("hf://")


def test_only_the_download_sees_the_token() -> None:
    model = {"source": "hf://org/name", "revision": "abc", "credentialsSecret": {"name": "hub", "key": "token"}}
    spec = pod_spec(parse({"model": model}), hf_endpoint="http://mirror:8090")
    download = spec["initContainers"][0]
    assert download["args"] == ["download", "--source", "hf://org/name", "--revision", "abc", "--into", "/models/hf"]
    env = {item["name"]: item for item in download["env"]}
    assert env["HF_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert env["HF_ENDPOINT"]["value"] == "http://mirror:8090"
    assert "HF_HUB_OFFLINE" not in env
    assert "hub" not in str(spec["containers"])


def test_placement_and_resources() -> None:
    shards = {
        "min": 1,
        "resources": {"requests": {"cpu": 2}, "limits": {"nvidia.com/gpu": 1}},
        "nodeSelector": {"gpu": "h200"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 30}],
        "priorityClassName": "high",
    }
    spec = pod_spec(parse({"shards": shards}, source="hf://org/name"))
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": 2}, "limits": {"nvidia.com/gpu": 1}}
    assert spec["nodeSelector"] == {"gpu": "h200"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 30}]
    assert spec["priorityClassName"] == "high"


def test_the_router(owner: Owner) -> None:
    found = objects(owner, parse({"router": {"replicas": 2, "queue": {"maxTokens": 10, "timeoutSeconds": 3}}}))
    spec = found["Deployment", "chat-router"]["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    pod = spec["template"]["spec"]
    assert pod["automountServiceAccountToken"] is True
    assert " ".join(pod["containers"][0]["args"]) == (
        "--pool chat --namespace team-a --served-name chat --workers 1 --policy LeastTokens --shard-requests 80 "
        "--queue-tokens 10 --queue-seconds 3 --drain-seconds 120"
    )
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]
    assert found["Role", "chat-router"]["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["chat-roster"],
            "verbs": ["get", "list", "watch"],
        },
    ]
    assert found["RoleBinding", "chat-router"]["roleRef"]["name"] == "chat-router"


def test_secrets_are_folders_that_follow_their_secret(owner: Owner) -> None:
    router = {
        "workers": 2,
        "policy": "PrefixAffinity",
        "apiKeysSecret": {"name": "keys-of-team"},
        "redis": {"secretRef": {"name": "redis", "key": "address"}},
        "tls": {"secretRef": {"name": "cert"}},
        "cors": {"allowedOrigins": ["https://a.example", "https://b.example:8443"]},
    }
    found = objects(owner, parse({"router": router, "shards": {"maxSequences": 2}}))
    pod = found["Deployment", "chat-router"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    arguments = dict(zip(container["args"][::2], container["args"][1::2], strict=True))
    assert (
        arguments
        | {
            "--workers": "2",
            "--policy": "PrefixAffinity",
            "--shard-requests": "3",
            "--keys-dir": "/etc/tokenpool/keys",
            "--redis-url-file": "/etc/tokenpool/redis/url",
            "--tls-dir": "/etc/tokenpool/tls",
            "--cors-origins": "https://a.example,https://b.example:8443",
        }
        == arguments
    )
    volumes = {volume["name"]: volume["secret"] for volume in pod["volumes"] if "secret" in volume}
    assert volumes == {
        "keys": {"secretName": "keys-of-team"},
        "redis": {"secretName": "redis", "items": [{"key": "address", "path": "url"}]},
        "tls": {"secretName": "cert"},
    }
    assert not any("subPath" in mount for mount in container["volumeMounts"])
    assert found["Service", "chat"]["spec"]["ports"][0]["port"] == 443
    assert found["NetworkPolicy", "chat-router"]["spec"]["egress"] == [{}], "where Redis is, only its Secret knows"


def test_selectors_pick_only_their_own_pods(owner: Owner) -> None:
    found = objects(owner, parse())
    pod = shard.shard_pod(owner, pod_spec(parse()), "aaaaaaaa", 0)["metadata"]["labels"]
    router = found["Deployment", "chat-router"]["spec"]["template"]["metadata"]["labels"]
    of_shards = found["Service", "chat-shards"]["spec"]["selector"]
    of_routers = found["Service", "chat"]["spec"]["selector"]
    assert of_shards.items() <= pod.items()
    assert of_routers.items() <= router.items()
    assert not of_shards.items() <= router.items()
    assert not of_routers.items() <= pod.items()
    assert found["PodDisruptionBudget", "chat-shards"]["spec"]["selector"]["matchLabels"] == of_shards


@pytest.mark.parametrize(("desired", "available"), [(0, 0), (1, 0), (2, 1), (8, 7)])
def test_the_disruption_budget_is_an_integer(owner: Owner, desired: int, available: int) -> None:
    budget = objects(owner, parse(), desired)["PodDisruptionBudget", "chat-shards"]
    assert budget["spec"]["minAvailable"] == available


def tcp_ports(rules: list[Raw]) -> list[list[int]]:
    return [[port["port"] for port in rule["ports"] if port["protocol"] == "TCP"] for rule in rules]


@pytest.mark.parametrize(
    ("source", "endpoint", "out"),
    [
        ("file:///model", None, [[53]]),
        ("hf://org/name", None, [[53], [443]]),
        ("hf://org/name", "http://mirror:8090", [[53], [443, 8090]]),
        ("hf://org/name", "https://mirror", [[53], [443]]),
        ("hf://org/name", "http://mirror", [[53], [80, 443]]),
    ],
)
def test_what_shards_may_reach(owner: Owner, source: str, endpoint: str | None, out: list[list[int]]) -> None:
    items = standing.standing_objects(owner, parse(source=source), 1, router_image="r", hf_endpoint=endpoint)
    policy = next(
        item for item in items if item["kind"] == "NetworkPolicy" and item["metadata"]["name"] == "chat-shards"
    )
    assert tcp_ports(policy["spec"]["egress"]) == out
    assert tcp_ports(policy["spec"]["ingress"]) == [[8000, 8001], [8001]]
    routers = {names.LABEL_POOL: "chat", names.LABEL_COMPONENT: "router"}
    assert policy["spec"]["ingress"][0]["from"] == [{"podSelector": {"matchLabels": routers}}]


def test_what_routers_may_reach(owner: Owner) -> None:
    policy = objects(owner, parse())["NetworkPolicy", "chat-router"]
    assert tcp_ports(policy["spec"]["egress"]) == [[8000, 8001], [8081], [443, 6443], [53]]
    assert tcp_ports(policy["spec"]["ingress"]) == [[8080, 8081]]


def test_telling_twice_makes_one_event(owner: Owner) -> None:
    def name(generation: int, reason: str) -> str:
        made = event.pool_event(owner, generation, type_="Normal", reason=reason, note="n", reporter="me", now="t")
        return str(made["metadata"]["name"])

    assert name(1, "AllReady") == name(1, "AllReady")
    assert len({name(1, "AllReady"), name(2, "AllReady"), name(1, "Paused")}) == 3
