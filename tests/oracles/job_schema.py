#!/usr/bin/env python3
"""Validates every job of the repository, and wrong ones, with the jsonschema package and the schema that `millrace schema` prints.

    millrace schema > schema.json && python tests/oracles/job_schema.py schema.json   (needs jsonschema)
"""
import json
import sys
import tomllib
from pathlib import Path

import jsonschema

ROOT = Path(__file__).resolve().parents[2]
schema = json.loads(Path(sys.argv[1]).read_text())
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
jobs = sorted((ROOT / "pipelines/jobs").rglob("*.toml"))
for path in jobs:
    for error in validator.iter_errors(tomllib.loads(path.read_text())):
        sys.exit(f"{path}: {error.json_path}: {error.message}")
wrong = ["seeds = 1", "seed = 'one'", "determinism = 'all'", "[train]\nstep = 5", "[train]\nprofile = 3", "[curate]\ninputs = 5",
         "[model]\nfamily = 'lama'", "[[curate.step]]\ngofer_quality = {}", "[finetune.dpo]\nbeta = 'low'"]
for text in wrong:
    if validator.is_valid(tomllib.loads(text)):
        sys.exit(f"valid: {text}")
print(f"{len(jobs)} jobs are valid, {len(wrong)} wrong ones are not")
