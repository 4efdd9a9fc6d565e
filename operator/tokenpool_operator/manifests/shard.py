"""The shard pod. Its spec is what the revision is a hash of: a change here replaces every shard of every pool."""

from typing import Any

from tokenpool_api import names
from tokenpool_api.shards import Resources
from tokenpool_api.spec import GRACE_MARGIN_SECONDS, PRE_STOP_SECONDS, TokenPoolSpec
from tokenpool_operator.manifests import metadata, model, security
from tokenpool_operator.manifests.metadata import Owner

Raw = dict[str, Any]

CONTAINER = "engine"
PROBE_SECONDS = 2
# Loading a large model from slow storage may take an hour; until then neither liveness nor readiness is asked.
STARTUP_SECONDS = 3600


def shard_pod(owner: Owner, spec: Raw, revision: str, ordinal: int) -> Raw:
    """One shard with the given pod spec and place."""
    meta = metadata.metadata(owner, names.shard_name(owner.name, revision, ordinal), names.COMPONENT_SHARD)
    meta["labels"] |= {names.LABEL_REVISION: revision, names.LABEL_ORDINAL: str(ordinal)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def shard_pod_spec(pool: str, spec: TokenPoolSpec, engine_image: str, hf_endpoint: str | None) -> Raw:
    """What a shard is. Replica counts, the router and this program's version have no part in it."""
    image = spec.image or engine_image
    files = model.files(spec.model.source, spec.image_pull_policy.value)
    body: Raw = {
        "serviceAccountName": names.shards_service_name(pool),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": grace_seconds(spec),
        "securityContext": security.pod_security(),
        "containers": [_engine(pool, spec, image, files)],
        "volumes": _volumes(files),
    }
    if spec.model.source.startswith(model.HUB_SCHEME):
        download = model.download_container(spec.model, image, spec.image_pull_policy.value, hf_endpoint)
        body["initContainers"] = [download | resources(spec.shards.resources)]
    return body | _placement(spec)


def grace_seconds(spec: TokenPoolSpec) -> int:
    """Time from the delete to the kill: pause for the routers, drain, margin."""
    computed = PRE_STOP_SECONDS + spec.rollout.drain_seconds + GRACE_MARGIN_SECONDS
    return spec.rollout.termination_grace_seconds or computed


def resources(given: Resources | None) -> Raw:
    """The `resources` field, or nothing."""
    return {"resources": given.model_dump(by_alias=True, exclude_none=True)} if given else {}


def _engine(pool: str, spec: TokenPoolSpec, image: str, files: model.ModelFiles) -> Raw:
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": spec.image_pull_policy.value,
        "args": engine_args(pool, spec, files.path),
        "env": _env(),
        "ports": [
            {"name": names.PORT_NAME_API, "containerPort": names.SHARD_API_PORT, "protocol": "TCP"},
            {"name": names.PORT_NAME_ADMIN, "containerPort": names.SHARD_ADMIN_PORT, "protocol": "TCP"},
        ],
        "startupProbe": _probe(names.PATH_READY, failures=STARTUP_SECONDS // PROBE_SECONDS, timeout=3),
        "readinessProbe": _probe(names.PATH_READY, failures=2, timeout=3),
        # A busy engine is slow to answer and must not be restarted for it: red after about a minute.
        "livenessProbe": _probe(names.PATH_HEALTH, failures=5, timeout=10) | {"periodSeconds": 10},
        # Routers learn of the leaving shard from its EndpointSlice before the engine stops taking requests.
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "securityContext": security.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [security.TMP_MOUNT, {"name": "shm", "mountPath": "/dev/shm"}, *files.mount(read_only=True)],  # noqa: S108
    } | resources(spec.shards.resources)


def engine_args(pool: str, spec: TokenPoolSpec, path: str) -> list[str]:
    """Command line of the engine. Absent fields are left to the engine, which knows device and model."""
    shards, tuned = spec.shards, spec.shards.performance
    flags = {
        "--model": path,
        "--served-name": spec.model.served_name or pool,
        "--token-budget": shards.token_budget,
        "--max-sequences": shards.max_sequences,
        "--max-model-length": shards.max_model_length,
        "--kv-cache-tokens": shards.kv_cache_tokens,
        "--dtype": shards.dtype.value,
        "--quantization": shards.quantization.value if shards.quantization else None,
        "--threads": shards.threads,
        # Said only where it matters, so that shards from before there was a choice stay what they are.
        "--tensor-parallel": shards.tensor_parallel if shards.tensor_parallel > 1 else None,
        "--matmul-precision": tuned.matmul_precision.value if tuned.matmul_precision else None,
        "--drain-seconds": spec.rollout.drain_seconds,
    }
    switches = {"--cudnn-benchmark": tuned.cudnn_benchmark, "--no-cuda-graphs": not tuned.cuda_graphs}
    return [
        "serve",
        *(text for flag, value in flags.items() if value is not None for text in (flag, str(value))),
        *(flag for flag, is_on in switches.items() if is_on),
    ]


def _env() -> list[Raw]:
    return [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "HOME", "value": security.TMP_MOUNT["mountPath"]},
        {"name": "HF_HUB_OFFLINE", "value": "1"},
        {"name": "OMP_WAIT_POLICY", "value": "passive"},
    ]


def _probe(path: str, *, failures: int, timeout: int) -> Raw:
    return {
        "httpGet": {"path": path, "port": names.PORT_NAME_ADMIN},
        "periodSeconds": PROBE_SECONDS,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def _volumes(files: model.ModelFiles) -> list[Raw]:
    shm = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    return [security.TMP_VOLUME, shm, *([files.volume] if files.volume else [])]


def _placement(spec: TokenPoolSpec) -> Raw:
    shards = spec.shards
    body: Raw = {}
    if shards.node_selector:
        body["nodeSelector"] = dict(shards.node_selector)
    if shards.priority_class_name:
        body["priorityClassName"] = shards.priority_class_name
    if shards.tolerations:
        body["tolerations"] = [item.model_dump(by_alias=True, exclude_none=True) for item in shards.tolerations]
    return body
