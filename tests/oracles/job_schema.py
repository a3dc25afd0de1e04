"""Verdicts of jsonschema on job files: python tests/oracles/job_schema.py MILLRACE > tests/data/job_schema.json

MILLRACE is the binary, whose `schema` is asked for; needs jsonschema (made with 4.26) and Python 3.11 for tomllib.
Every job file under pipelines/jobs must be valid, and each job with one wrong line must not be. The answer holds the
places that jsonschema names in each case; the checker of tests/all/schema.rs is held to them.
"""
import json, pathlib, subprocess, sys, tomllib

import jsonschema

root = pathlib.Path(__file__).resolve().parents[2]
text = subprocess.run([sys.argv[1], "schema"], check=True, capture_output=True).stdout
schema = json.loads(text)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)

good = {}
for path in sorted((root / "pipelines" / "jobs").rglob("*.toml")):
    job = tomllib.loads(path.read_text(encoding="utf-8"))
    good[str(path.relative_to(root))] = [e.json_path + ": " + e.message for e in validator.iter_errors(job)]

wrong = [
    "stepz = 2",
    "seed = 'x'",
    "seed = 1.5",
    "device = 'gpu'",
    "[train]\nstepz = 2",
    "[train]\nsteps = 'many'",
    "[train]\nlr = 'x'",
    "[train]\ncheckpoint = 3",
    "[curate]\ninputs = 3",
    "[curate]\ninputs = [{ paht = 'a' }]",
    "[curate]\ninputs = [{ path = 1 }]",
    "[curate]\ninputs = ['b', { path = 1 }]",
    "[curate]\ninputs = ['b', 3]",
    "[tokenize]\ninputs = ['b', { path = 'a', format = 'jsnl' }]",
    "[curate]\ninputs = [{ path = 'a', format = 'wrac' }]",
    "[[curate.step]]\nnonsense = {}",
    "[[curate.step]]\nc4 = {}\ngopher_quality = {}",
    "[[curate.step]]\ngopher_quality = { limits = { nonsense = 1 } }",
    "[tokenize]\njson_keys = 'text'",
    "[tokenize]\ntokenizer = 'gpt2'",
    "[tokenize]\nnaming = 'megatro'",
    "[blend]\nseq_length = 'x'",
    "[blend]\nweights = 'token'",
    "[model]\nfamily = 'lama'",
    "[model]\nlayers = true",
    "[model.rope_scaling]\nnonsense = {}",
    "[parallel]\ntensors = 2",
    "[parallel]\ntp = 0",
    "[curate]\nsample = 1.5",
    "[curate]\nsample = -0.5",
    "[train]\nlr = 0.0",
    "[train]\nbeta1 = 1.0",
    "[train]\nwarmup_steps = -1",
    "[train]\nglobal_batch = 0",
]
verdicts = {case: sorted({e.json_path for e in validator.iter_errors(tomllib.loads(case))}) for case in wrong}
answer = {"jsonschema": jsonschema.__version__, "jobs": good, "wrong": verdicts}
json.dump(answer, sys.stdout, indent=1)
print()
