"""Carries out the actions of a pass. What the API server refuses for good becomes a trouble; the rest goes on.

Temporary errors rise: the pass ends and a later one starts from a fresh picture.
"""

from collections.abc import Iterable

from tokenpool_kube import AlreadyExists, Conflict, Forbidden, Invalid
from tokenpool_operator.actions import Action, Apply, Create, Delete, Raw
from tokenpool_operator.cluster import Door
from tokenpool_operator.manifests.metadata import Owner
from tokenpool_operator.observe import owner_uid
from tokenpool_operator.trouble import Trouble


async def perform_all(door: Door, owner: Owner, actions: Iterable[Action]) -> tuple[Trouble, ...]:
    """In the given order. Returns what was refused, each only once."""
    troubles = [await perform(door, owner, action) for action in actions]
    return tuple(dict.fromkeys(trouble for trouble in troubles if trouble))


async def perform(door: Door, owner: Owner, action: Action) -> Trouble | None:
    """One action; None when it is done."""
    try:
        match action:
            case Delete(kind, name, uid):
                await door.delete(kind, owner.namespace, name, uid)
            case Create(body):
                return await _create(door, owner, body)
            case Apply(body, None):
                return await _apply_new(door, owner, body)
            case Apply(body, uid):
                await door.apply(_with_uid(body, uid), force=True)
    except (Forbidden, Invalid) as error:
        return refusal(error)
    return None


def refusal(error: Forbidden | Invalid) -> Trouble:
    """What a 403 or 422 says, in a stable word: a missing right, a quota, or a rule of the cluster."""
    if isinstance(error, Invalid):
        return Trouble("Refused", error.message)
    if "exceeded quota" in error.message:
        return Trouble("QuotaExceeded", error.message)
    # RBAC's own wording is "user X cannot VERB resource Y"; admission plugins answer 403 too, in other words.
    return Trouble("Forbidden" if " cannot " in error.message else "Refused", error.message)


async def _create(door: Door, owner: Owner, body: Raw) -> Trouble | None:
    try:
        await door.create(body)
    except AlreadyExists as error:
        existing = await door.get(body["kind"], owner.namespace, body["metadata"]["name"])
        if existing is None:
            raise Conflict(error.status, error.reason, "the name was freed meanwhile") from error
        # A lost reply to our own create looks like this.
        return None if owner_uid(existing) == owner.uid else _name_conflict(body)
    return None


async def _apply_new(door: Door, owner: Owner, body: Raw) -> Trouble | None:
    """An apply would silently take over a namesake, so who owns the name is asked first."""
    existing = await door.get(body["kind"], owner.namespace, body["metadata"]["name"])
    if existing is None:
        # Without force a namesake that appears just now is a conflict.
        await door.apply(body, force=False)
        return None
    if owner_uid(existing) != owner.uid:
        return _name_conflict(body)
    await door.apply(_with_uid(body, existing["metadata"]["uid"]), force=True)
    return None


def _with_uid(body: Raw, uid: str | None) -> Raw:
    """The UID makes the apply refuse to create, or to change another object of that name."""
    return body | {"metadata": body["metadata"] | {"uid": uid}}


def _name_conflict(body: Raw) -> Trouble:
    kind, name = body["kind"], body["metadata"]["name"]
    return Trouble(
        "NameConflict", f"{kind} {name} exists and does not belong to this pool; remove or rename one of them."
    )
