"""`spec.shards`: how many shards, and what each of them is."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from tokenpool_api import names
from tokenpool_api.base import Spec, rules


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
