"""Turn a pydantic model into the structural OpenAPI schema that a CRD wants. Pure; knows nothing of TokenPool.

The API server takes no `$ref`, no `null` type and no `title`, and fills nested defaults only where every level has one
written out in full.
"""

from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

# Closed objects are refused by strict field validation and pruned otherwise; the keyword itself is not structural.
DROPPED_KEYS = frozenset({"title", "$defs", "const", "discriminator"})


def structural(model: type[BaseModel]) -> Schema:
    """The model's schema in camelCase with references resolved and defaults written out."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    schema = convert(raw, raw.get("$defs", {}))
    write_defaults(schema)
    return schema


def convert(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """One node and all below it."""
    node = resolve(node, definitions)
    result: Schema = {}
    for key, value in node.items():
        if key == "properties":
            result[key] = {name: convert(child, definitions) for name, child in value.items()}
        elif key == "items" or (key == "additionalProperties" and isinstance(value, dict)):
            result[key] = convert(value, definitions)
        elif key not in DROPPED_KEYS and key != "additionalProperties" and not (key == "default" and value is None):
            result[key] = value
    if "const" in node:
        result["enum"] = [node["const"]]
    if result.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
    return result


def resolve(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Follow `$ref` and unwrap "this or null"; what stands beside them wins over what they point at."""
    beside = {key: value for key, value in node.items() if key not in ("$ref", "anyOf")}
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        return resolve({**target, **beside}, definitions)
    if "anyOf" in node:
        options = [option for option in node["anyOf"] if option.get("type") != "null"]
        if len(options) == 1:
            return resolve({**options[0], **beside}, definitions)
        return {**beside, "anyOf": [{"type": option["type"]} for option in options]}
    return node


def write_defaults(schema: Schema) -> None:
    """Give each object without required fields a default made of its children's defaults.

    `default: {}` would do for filling, but CEL rules above it are checked against the default as written.
    """
    for child in schema.get("properties", {}).values():
        write_defaults(child)
    for child in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(child, dict):
            write_defaults(child)
    for child in schema.get("properties", {}).values():
        if "properties" in child and "default" not in child and not child.get("required"):
            defaults = {name: sub["default"] for name, sub in child["properties"].items() if "default" in sub}
            if defaults:
                child["default"] = defaults
