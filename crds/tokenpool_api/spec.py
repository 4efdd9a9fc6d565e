"""What a user writes into a TokenPool. A field exists only when something obeys it.

Bounds, defaults and rules live here and nowhere else: `schema.py` turns these models into the CRD, so the API server
refuses bad input with our message, and the operator parses with the same models.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tokenpool_api import names


def rules(*validations: tuple[str, str]) -> dict[str, Any]:
    """CEL rules of one object, as (rule, message) pairs. A rule sits on the smallest object that it needs."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in validations]}


class Spec(BaseModel):
    """Base of all spec objects: camelCase in YAML, unknown fields refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


# Secrets may have dots in their names, claims too.
DNS_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=f"^{DNS_SUBDOMAIN}$")]
CLAIM_RULE = r"!self.source.startsWith('pvc://') || self.source.matches(r'^pvc://" + DNS_SUBDOMAIN + "(/.*)?$')"
SOURCE_RULE = "self.matches('^(hf|pvc|oci)://[A-Za-z0-9][A-Za-z0-9._/@:-]*$|^file:///[A-Za-z0-9._/-]+$')"
SOURCE_MESSAGE = (
    "model.source must be hf://org/name, pvc://claim/path, file:///path/in/image or oci://image; "
    "free URLs are not fetched"
)


class SecretKey(Spec):
    """One key of a Secret in the pool's namespace."""

    name: ObjectName = Field(description="Name of the Secret.")
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = Field(
        description="Key inside the Secret whose value is used."
    )


class Model(Spec):
    """Which model the pool serves and where its files come from."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "has(self.servedName) == has(oldSelf.servedName) && "
                "(!has(self.servedName) || self.servedName == oldSelf.servedName)",
                "model.servedName is immutable: clients address the pool by it; make another pool for another name",
            ),
            (
                "!has(self.credentialsSecret) || self.source.startsWith('hf://')",
                "model.credentialsSecret is used only with an hf:// source; remove it",
            ),
            (
                "!has(self.revision) || self.source.startsWith('hf://')",
                "model.revision is used only with an hf:// source; remove it",
            ),
            (
                "!self.source.startsWith('hf://') || self.source.matches('^hf://[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$')",
                "model.source with hf:// must be hf://org/name; give the commit in model.revision",
            ),
            (
                CLAIM_RULE,
                "model.source with pvc:// must be pvc://claim/path, the claim being a name that Kubernetes allows",
            ),
            ("!self.source.contains('..')", "model.source must not contain '..'"),
        )
    )
    source: Annotated[
        str,
        Field(
            min_length=6,
            max_length=512,
            json_schema_extra=rules((SOURCE_RULE, SOURCE_MESSAGE)),
            description="Where the model's files are: hf://org/name (Hugging Face hub), pvc://claim/path (a volume "
            "claim in the pool's namespace, mounted read-only), file:///path (inside the shard image) or oci://image "
            "(an image that holds the files). Only safetensors weights are loaded, never pickles or remote code.",
        ),
    ]
    revision: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")] | None = (
        Field(
            default=None,
            description="Commit, tag or branch of an hf:// source. Pin a commit: a branch may change under you.",
        )
    )
    served_name: (
        Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")] | None
    ) = Field(
        default=None,
        description="The model's name in the OpenAI API. Default: the pool's name. Cannot be changed later.",
    )
    credentials_secret: SecretKey | None = Field(
        default=None,
        description="Secret key with the hub's access token. It reaches only the container that downloads.",
    )


class Dtype(StrEnum):
    """Number format of weights and activations."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Quantization(StrEnum):
    """What weights and activations are rounded to."""

    INT8 = "int8"


# Judged here and not when the pods are made: a server-side apply answers an unreadable quantity with 500, as if it were
# the server's own trouble and would pass.
QUANTITY_RULE = "type(self) == int ? self >= 0 : isQuantity(self) && !quantity(self).isLessThan(quantity('0'))"
Quantity = Annotated[
    int | Annotated[str, Field(max_length=32)],
    Field(
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
            **rules((QUANTITY_RULE, "must be a Kubernetes quantity that is not negative, such as 2, 500m or 4Gi")),
        },
        description="A Kubernetes quantity, such as 2, 500m or 4Gi.",
    ),
]
ResourceList = Annotated[dict[str, Quantity], Field(max_length=16)]


class Resources(Spec):
    """Compute resources of one container."""

    requests: ResourceList | None = Field(
        default=None, description="What the scheduler sets aside, such as cpu and memory."
    )
    limits: ResourceList | None = Field(
        default=None, description="What a container may use at most, such as memory and nvidia.com/gpu."
    )


class Toleration(Spec):
    """A node taint that shards accept."""

    key: Annotated[str, Field(max_length=316)] | None = Field(
        default=None, description="Taint key; absent matches all."
    )
    operator: Literal["Equal", "Exists"] = Field(default="Equal", description="How value is compared.")
    value: Annotated[str, Field(max_length=63)] | None = Field(default=None, description="Taint value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Taint effect; absent matches all."
    )
    toleration_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = Field(
        default=None, description="How long a NoExecute taint is tolerated, in seconds; absent: for ever."
    )


class MatmulPrecision(StrEnum):
    """How float32 products may be rounded, in torch's words."""

    HIGHEST = "highest"
    HIGH = "high"
    MEDIUM = "medium"


class Performance(Spec):
    """What trades start time, memory or exactness for speed."""

    matmul_precision: MatmulPrecision | None = Field(
        default=None,
        description="How float32 products may be rounded: highest (not at all), high (TensorFloat32), medium "
        "(bfloat16). Default: high on GPU, highest on CPU. Weights of 16 bits are not concerned.",
    )
    cudnn_benchmark: bool = Field(
        default=False,
        description="Let cuDNN try its kernels for each new shape and keep the fastest. Only for models with "
        "convolutions.",
    )
    cuda_graphs: bool = Field(
        default=True,
        description="Record decoding steps as CUDA graphs at the start, which takes seconds and some GPU memory. "
        "Without effect on CPUs and with tensorParallel above 1.",
    )


GPU = "nvidia.com/gpu"
# Devices are counted, as a number or as text; with none of them a shard's ranks compute on CPUs.
GPUS_RULE = (
    f"!has(self.resources) || !has(self.resources.limits) || !('{GPU}' in self.resources.limits) || "
    f"self.resources.limits['{GPU}'] in "
    "[dyn(0), dyn('0'), dyn(self.tensorParallel), dyn(string(self.tensorParallel))]"
)


class Shards(Spec):
    """How many shards, and what each of them is."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("self.min <= self.max", "shards.min must not be greater than shards.max"),
            (
                "!has(self.maxModelLength) || !has(self.kvCacheTokens) || self.maxModelLength <= self.kvCacheTokens",
                "shards.maxModelLength must not be greater than shards.kvCacheTokens: one request has to fit",
            ),
            (
                GPUS_RULE,
                f"shards.tensorParallel must be the number of {GPU} in shards.resources.limits: each rank has one",
            ),
        )
    )
    min: int = Field(
        default=1, ge=0, le=names.MAX_SHARDS, description="The fewest shards. `kubectl scale` sets this field."
    )
    max: int = Field(default=names.MAX_SHARDS, ge=1, le=names.MAX_SHARDS, description="The most shards.")
    token_budget: Annotated[int, Field(ge=16, le=65_536)] | None = Field(
        default=None,
        description="Tokens that one forward step computes at most, prompt and decode together. "
        "Default: 512 on CPU, 1024 on GPU. The useful range is 512 to 1024.",
    )
    max_sequences: int = Field(
        default=64, ge=1, le=4096, description="Requests that one shard runs at the same time at most."
    )
    max_model_length: Annotated[int, Field(ge=16, le=10_000_000)] | None = Field(
        default=None,
        description="Tokens that prompt and answer of one request may have together. Default: what the model allows, "
        "cut to what fits in the KV cache.",
    )
    kv_cache_tokens: Annotated[int, Field(ge=64, le=1_000_000_000)] | None = Field(
        default=None, description="Tokens that a shard's KV cache holds. Default: sized by the shard from free memory."
    )
    dtype: Dtype = Field(
        default=Dtype.AUTO, description="Number format of the weights; auto picks what the device computes fast."
    )
    quantization: Quantization | None = Field(
        default=None,
        description="int8: weights and activations in 8 bits, scales per column and per token; faster and less exact. "
        "For Llama-shaped models on CPUs with AVX-512 VNNI. Default: none.",
    )
    threads: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="CPU threads of a forward step. Default: the container's CPU quota."
    )
    tensor_parallel: int = Field(
        default=1,
        ge=1,
        le=16,
        description="Ranks that compute each layer of a shard together. Each has a GPU of its own, so this is the "
        "number of GPUs in resources.limits; without GPUs, ranks share the CPUs. It must divide the model's key-value "
        "heads.",
    )
    performance: Performance = Field(
        default_factory=Performance, description="What trades start time, memory or exactness for speed."
    )
    resources: Resources | None = Field(default=None, description="Compute resources of a shard, GPUs among them.")
    node_selector: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)] | None = Field(
        default=None, description="Labels that a node must have."
    )
    tolerations: Annotated[list[Toleration], Field(max_length=32)] | None = Field(
        default=None, description="Node taints that shards accept."
    )
    priority_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        default=None, description="Name of the PriorityClass of the shards."
    )


# An eviction or scale-down must find room for the drain: preStop pause before it, margin after it.
PRE_STOP_SECONDS = 5
GRACE_MARGIN_SECONDS = 10


class Rollout(Spec):
    """How shards are replaced and taken away."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                f"!has(self.terminationGraceSeconds) || self.terminationGraceSeconds >= self.drainSeconds + "
                f"{PRE_STOP_SECONDS + GRACE_MARGIN_SECONDS}",
                f"rollout.terminationGraceSeconds must be at least rollout.drainSeconds + "
                f"{PRE_STOP_SECONDS + GRACE_MARGIN_SECONDS}; leave it out to have it computed",
            )
        )
    )
    drain_seconds: int = Field(
        default=120, ge=0, le=86_400, description="How long a leaving shard may go on with the requests that it runs."
    )
    termination_grace_seconds: Annotated[int, Field(ge=1, le=90_000)] | None = Field(
        default=None,
        description="The pod's grace period in seconds. Default: computed from drainSeconds.",
    )


class Queue(Spec):
    """Requests that wait in the router for a shard."""

    max_tokens: int = Field(
        default=262_144,
        ge=0,
        le=1_000_000_000,
        description="Estimated tokens of all waiting requests at most; then 503.",
    )
    timeout_seconds: int = Field(
        default=30, ge=0, le=3600, description="How long a request may wait for a shard; then 503 with Retry-After."
    )


class Router(Spec):
    """The pool's front door."""

    replicas: int = Field(default=1, ge=1, le=64, description="Router pods.")
    queue: Queue = Field(
        default_factory=Queue,
        description="Bounds of waiting.",
    )
    resources: Resources | None = Field(default=None, description="Compute resources of a router pod.")


class PullPolicy(StrEnum):
    """When the kubelet pulls the image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class TokenPoolSpec(Spec):
    """The wanted state of a pool."""

    model: Model = Field(description="Which model the pool serves and where its files come from.")
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None, description="Image of the shards. Default: the engine image that the operator was installed with."
    )
    image_pull_policy: PullPolicy = Field(
        default=PullPolicy.IF_NOT_PRESENT, description="When shard and router images are pulled."
    )
    shards: Shards = Field(default_factory=Shards, description="How many shards, and what each of them is.")
    rollout: Rollout = Field(default_factory=Rollout, description="How shards are replaced and taken away.")
    router: Router = Field(default_factory=Router, description="The pool's front door.")
    paused: bool = Field(
        default=False, description="While true the operator changes nothing of this pool; status goes on."
    )
