"""What a user writes into a TokenPool. A field exists only when something obeys it.

Bounds, defaults and rules live here and nowhere else: `schema.py` turns these models into the CRD, so the API server
refuses bad input with our message, and the operator parses with the same models.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from tokenpool_api.base import DNS_SUBDOMAIN, SecretKey, Spec, rules
from tokenpool_api.router import Router
from tokenpool_api.shards import Shards

CLAIM_RULE = r"!self.source.startsWith('pvc://') || self.source.matches(r'^pvc://" + DNS_SUBDOMAIN + "(/.*)?$')"
SOURCE_RULE = "self.matches('^(hf|pvc|oci)://[A-Za-z0-9][A-Za-z0-9._/@:-]*$|^file:///[A-Za-z0-9._/-]+$')"
SOURCE_MESSAGE = (
    "model.source must be hf://org/name, pvc://claim/path, file:///path/in/image or oci://image; "
    "free URLs are not fetched"
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
