#!/usr/bin/env python3
"""Makes schema.json from a checkout of github.com/ocsf/ocsf-schema: the classes that the export writes, with the objects
that it puts into them, as JSON Schema. Attributes are what the sources say: types, required ones, enums, constraints; an object
or class may have no others. Objects that the export does not write are refused altogether.

usage: generate.py CHECKOUT COMMIT > schema.json"""

import json
import pathlib
import sys

root, commit = pathlib.Path(sys.argv[1]), sys.argv[2]
CLASSES = [
    "system/file_activity", "system/process_activity", "iam/authentication", "iam/entity_management",
    "application/application_lifecycle", "application/api_activity",
]
OBJECTS = [
    "metadata", "product", "actor", "user", "organization", "process", "file", "api", "service", "device", "network_endpoint",
    "http_request", "managed_entity", "application", "fingerprint", "group", "request", "trace", "feature", "session",
]
dictionary = json.loads((root / "dictionary.json").read_text())
categories = json.loads((root / "categories.json").read_text())["attributes"]


def merged(path, kind):
    """The definition of a file with what it extends; profiles are left out."""
    own = json.loads(path.read_text())
    base = {}
    if "extends" in own:
        found = [p for p in (root / kind).rglob("*.json") if json.loads(p.read_text()).get("name") == own["extends"]]
        base = merged(found[0], kind)
    out = {**base, **{k: v for k, v in own.items() if k != "attributes"}}
    attributes = {k: dict(v) for k, v in base.get("attributes", {}).items()}
    for name, a in own.get("attributes", {}).items():
        if name.startswith("$") or a.get("profile"):
            continue
        before = attributes.get(name, {})
        enum = {**before.get("enum", {}), **a.get("enum", {})}
        attributes[name] = {**before, **a, **({"enum": enum} if enum else {})}
    out["attributes"] = attributes
    return out


def of_type(name, seen=()):
    """The JSON Schema of a type of the dictionary."""
    t = dictionary["types"]["attributes"].get(name)
    if t is None:
        return None
    base = of_type(t["type"], seen) if t.get("type") else {
        "string_t": {"type": "string"}, "integer_t": {"type": "integer"}, "long_t": {"type": "integer"}, "float_t": {"type": "number"},
        "boolean_t": {"type": "boolean"}, "json_t": {},
    }[name]
    out = dict(base)
    if "max_len" in t:
        out["maxLength"] = t["max_len"]
    if "regex" in t:
        out["pattern"] = t["regex"]
    if "range" in t:
        out["minimum"], out["maximum"] = t["range"]
    return out


def attribute(name, a):
    d = dictionary["attributes"].get(name, {})
    kind = a.get("type", d.get("type"))
    enum = {**d.get("enum", {}), **a.get("enum", {})}
    out = of_type(kind)
    if out is None or kind == "object":
        kind = a.get("object_type", d.get("object_type", kind)) if kind == "object_t" else kind
        if name == "unmapped" or kind == "object":
            out = {"type": "object"}
        elif kind in OBJECTS:
            out = {"$ref": "#/$defs/" + kind}
        else:
            return False
    if enum:
        values = list(enum)
        out = {**out, "enum": [int(v) for v in values] if out.get("type") == "integer" else values}
    if a.get("is_array", d.get("is_array")):
        out = {"type": "array", "items": out}
    return out


def schema(definition):
    attributes = definition["attributes"]
    out = {
        "type": "object", "additionalProperties": False,
        "properties": {name: attribute(name, a) for name, a in sorted(attributes.items())},
        "required": sorted(n for n, a in attributes.items() if a.get("requirement") == "required"),
    }
    constraints = definition.get("constraints", {})
    if "at_least_one" in constraints:
        out["anyOf"] = [{"required": [n]} for n in constraints["at_least_one"]]
    if "just_one" in constraints:
        out["oneOf"] = [{"required": [n]} for n in constraints["just_one"]]
    return out


defs, classes = {}, []
for name in OBJECTS:
    path = root / "objects" / (name + ".json")
    if path.exists():
        defs[name] = schema(merged(path, "objects"))
for name in CLASSES:
    c = merged(root / "events" / (name + ".json"), "events")
    category = categories[c["category"]]["uid"]
    uid = category * 1000 + c["uid"]
    s = schema(c)
    s["properties"]["class_uid"] = {"const": uid}
    s["properties"]["category_uid"] = {"const": category}
    s["properties"]["class_name"] = {"const": c["caption"]}
    s["properties"]["type_uid"] = {"enum": [uid * 100 + i for i in s["properties"]["activity_id"]["enum"]]}
    s["properties"]["unmapped"] = {"type": "object"}
    defs[c["name"]] = s
    classes.append({
        "if": {"properties": {"class_uid": {"const": uid}}, "required": ["class_uid"]},
        "then": {"$ref": "#/$defs/" + c["name"]},
    })
json.dump({
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$comment": "OCSF " + json.loads((root / "version.json").read_text())["version"] + ", github.com/ocsf/ocsf-schema commit " + commit +
                " (Apache-2.0), made by generate.py",
    "type": "object", "required": ["class_uid"],
    "properties": {"class_uid": {"enum": [c["if"]["properties"]["class_uid"]["const"] for c in classes]}},
    "allOf": classes, "$defs": defs,
}, sys.stdout, indent=1, sort_keys=True)
print()
