"""From a pool's spec and a picture of its children to a goal and the actions of this pass. Pure."""

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tokenpool_api import names
from tokenpool_api.spec import TokenPoolSpec
from tokenpool_operator import drift, revision
from tokenpool_operator.actions import Action, Apply, Create, Delete
from tokenpool_operator.manifests import shard, standing
from tokenpool_operator.manifests.metadata import Owner
from tokenpool_operator.manifests.roster import roster_config_map
from tokenpool_operator.observe import Observed
from tokenpool_operator.rollout import Goal, next_step
from tokenpool_operator.settings import Settings
from tokenpool_operator.trouble import Trouble

Raw = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Where the pool should get to, and what this pass does for it, in order."""

    goal: Goal
    actions: tuple[Action, ...] = ()
    again_seconds: float | None = None


def read_spec(pool: Raw) -> TokenPoolSpec | Trouble:
    """The spec, or what is wrong with it. Only objects stored under another schema can be wrong: the CRD checks."""
    name = pool["metadata"]["name"]
    if len(name) > names.POOL_NAME_MAX_LENGTH:
        return Trouble("InvalidSpec", f"metadata.name must be at most {names.POOL_NAME_MAX_LENGTH} characters")
    try:
        return TokenPoolSpec.model_validate(pool.get("spec") or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return Trouble("InvalidSpec", f"{_yaml_path(first['loc'])}: {first['msg']}")


def decide(owner: Owner, spec: TokenPoolSpec, observed: Observed, settings: Settings, now: float) -> Plan:
    """Deletes first, so that names and nodes get free; then what shards lean on; then shards."""
    pod_spec = shard.shard_pod_spec(owner.name, spec, settings.engine_image, settings.hf_endpoint)
    goal = _goal(spec, revision.revision_of(pod_spec), settings)
    if spec.paused:
        return Plan(goal)
    step = next_step(observed.shards, goal, now=now, replace_seconds=settings.replace_seconds)
    deletes = [Delete("Pod", item.shard.name, item.shard.uid, item.why) for item in step.remove]
    creates = [Create(shard.shard_pod(owner, pod_spec, goal.revision, ordinal)) for ordinal in step.create]
    leaving = [item.shard.name for item in step.remove]
    # Routers hear of who leaves before it does.
    roster = _roster(owner, observed, leaving)
    return Plan(goal, (*roster, *deletes, *_applies(owner, spec, observed, settings), *creates), step.again_seconds)


def _roster(owner: Owner, observed: Observed, leaving: list[str]) -> list[Apply]:
    live = observed.children.get(("ConfigMap", names.roster_name(owner.name)))
    return _needed(drift.stamped(roster_config_map(owner, observed.shards, leaving, live)), live)


def _goal(spec: TokenPoolSpec, wanted: str, settings: Settings) -> Goal:
    model = spec.model.source + (f"@{spec.model.revision}" if spec.model.revision else "")
    return Goal(spec.shards.min, wanted, model, spec.image or settings.engine_image)


def _applies(owner: Owner, spec: TokenPoolSpec, observed: Observed, settings: Settings) -> list[Apply]:
    """Standing objects that are missing or differ."""
    wanted = standing.standing_objects(
        owner, spec, spec.shards.min, router_image=settings.router_image, hf_endpoint=settings.hf_endpoint
    )
    found: list[Apply] = []
    for body in map(drift.stamped, wanted):
        found += _needed(body, observed.children.get((body["kind"], body["metadata"]["name"])))
    return found


def _needed(body: Raw, live: Raw | None) -> list[Apply]:
    """Apply what is missing or differs; what is on its way out is applied when it is gone."""
    if live is None:
        return [Apply(body, None)]
    if live["metadata"].get("deletionTimestamp") or drift.is_current(body, live):
        return []
    return [Apply(body, live["metadata"]["uid"])]


def _yaml_path(location: tuple[int | str, ...]) -> str:
    """Such as spec.shards.tolerations[0].effect."""
    return "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
