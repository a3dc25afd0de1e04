#!/usr/bin/env python3
"""Fields and types of Kubernetes' Job, Service and all that they contain, from the models of its Python client.

    pip download kubernetes==34.1.0 --no-deps && python3 kubernetes_types.py kubernetes-34.1.0-*.whl > ../data/kubernetes_types.json

The client's models are made from the OpenAPI document of Kubernetes 1.34. Only names and types are kept.
"""

import ast
import json
import re
import sys
import zipfile

ROOTS = ["V1Job", "V1Service"]


def literal(text, name):
    """The dictionary that a class assigns to `name`."""
    return ast.literal_eval(re.search(rf"{name} = (\{{.*?\n    \}})", text, re.S).group(1))


def main():
    archive = zipfile.ZipFile(sys.argv[1])
    models = {}
    for path in archive.namelist():
        if not re.fullmatch(r"kubernetes/client/models/v1_\w+\.py", path):
            continue
        text = archive.read(path).decode()
        name = re.search(r"^class (\w+)\(object\)", text, re.M).group(1)
        types, names = literal(text, "openapi_types"), literal(text, "attribute_map")
        required = re.findall(r"ValueError\(\"Invalid value for `(\w+)`, must not be `None`\"\)", text)
        models[name] = {
            "fields": {names[field]: kind for field, kind in types.items()},
            "required": [names[field] for field in required],
        }
    found, todo = {}, list(ROOTS)
    while todo:
        name = todo.pop()
        if name in found or name not in models:
            continue
        found[name] = models[name]
        for kind in models[name]["fields"].values():
            todo += re.findall(r"\w+", kind)
    version = re.search(r"kubernetes-([\d.]+)-", sys.argv[1]).group(1)
    out = {"client": version, "types": dict(sorted(found.items()))}
    json.dump(out, sys.stdout, indent=0, sort_keys=True)
    print()


main()
