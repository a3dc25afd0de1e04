"""The folder of a job: a written one for what files say, and one that `MILLRACE` makes, compared with its own dump."""

import hashlib
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from conftest import ROOT

import millrace

JOB = """
name = "python"
out = "{out}"
seed = 11
threads = 2
[curate]
statistics = true
inputs = [
  {{ path = "{data}/pile-00000.jsonl.zst", format = "jsonl", source = "pile" }},
  {{ path = "{data}/pile-00001.jsonl.zst", format = "jsonl", source = "more" }},
]
[dedup]
exact = {{}}
[tokenize]
tokenizer = {{ train = {{ kind = "bpe", vocab = 512 }} }}
[blend]
seq_length = 32
split = "90,10,0"
weights = "tokens"
{blend}
[[blend.dataset]]
name = "pile"
weight = 0.3
[[blend.dataset]]
name = "more"
weight = 0.7
[model]
family = "llama"
layers = 1
d_model = 32
heads = 2
kv_heads = 2
[train]
steps = 4
global_batch = 4
micro_batch = 2
lr = 1e-3
warmup_steps = 1
eval_every = 2
eval_samples = 8
checkpoint = {{ every = 2, keep = 2 }}
"""


def write_run(folder, metrics=()):
    (folder / "job.toml").write_text('name = "x"\nseed = 1\n')
    (folder / "metrics.jsonl").write_text("".join(m if isinstance(m, str) else json.dumps(m) + "\n" for m in metrics))
    return millrace.open_run(folder)


def test_a_folder_that_has_only_begun_opens(tmp_path):
    (tmp_path / "job.toml").write_text('name = "x"\n')
    run = millrace.open_run(tmp_path)
    assert (run.manifest, run.records, run.metrics, run.checkpoints, run.datasets) == ({}, [], [], {}, {})
    assert run.curve()[0].tolist() == []
    for absent in ("statistics", "eval"):
        with pytest.raises(FileNotFoundError, match=absent):
            getattr(run, absent)
    with pytest.raises(ValueError, match=r"found no \[blend\]"):
        run.samples()


def test_steps_that_a_resumed_run_repeats_count_once_and_an_unfinished_line_not_at_all(tmp_path):
    lines = [
        {"step": 1, "loss": 4.0, "consumed_samples": 8},
        {"step": 2, "loss": 3.0, "consumed_samples": 16},
        {"step": 2, "valid_loss": 3.5},
        {"step": 2, "valid_loss": 3.25, "set": "code"},
        {"step": 3, "loss": 2.0, "consumed_samples": 24},
        {"step": 2, "loss": 3.125, "consumed_samples": 16},
        {"step": 2, "valid_loss": 3.75},
        {"step": 3, "loss": None, "skipped": "not finite", "consumed_samples": 24},
        '{"step": 4, "lo',
    ]
    run = write_run(tmp_path, lines)
    steps, losses = run.curve()
    assert steps.tolist() == [1, 2, 3] and losses[:2].tolist() == [4.0, 3.125] and np.isnan(losses[2])
    assert [a.tolist() for a in run.curve("valid_loss")] == [[2], [3.75]]
    assert run.curve("valid_loss", "code")[0].tolist() == []
    assert run.step_samples(1) == range(0, 8) and run.step_samples(3) == range(16, 24)
    with pytest.raises(KeyError, match="no step 4"):
        run.step_samples(4)


def test_damaged_files_are_named(tmp_path):
    run = write_run(tmp_path, ["nonsense\n"])
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match=r"metrics\.jsonl: line 1.*wanted JSON"):
        run.metrics  # noqa: B018
    with pytest.raises(ValueError, match=r"manifest\.json.*wanted JSON"):
        run.manifest  # noqa: B018
    (tmp_path / "job.toml").write_text("[")
    with pytest.raises(ValueError, match=r"job\.toml.*wanted TOML"):
        millrace.open_run(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"job\.toml"):
        millrace.open_run(tmp_path / "none")


def test_samples_that_are_more_than_an_order_are_refused(tmp_path):
    for key, value in (("samples", '"bert"'), ("sampler", '"cyclic"'), ("fim", "{ rate = 0.5 }")):
        (tmp_path / "job.toml").write_text(f'name = "x"\n[blend]\n{key} = {value}\n')
        with pytest.raises(ValueError, match=rf"blend\.{key}: found .*, wanted"):
            millrace.open_run(tmp_path).samples()


def sha(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


needs_millrace = pytest.mark.skipif("MILLRACE" not in os.environ, reason="MILLRACE names no program")


@needs_millrace
@pytest.mark.parametrize("blend", ["", "full_validation = true", 'mixture = "proportional"', "even_batches = true"])
def test_the_samples_of_a_job_are_those_that_its_program_dumps(tmp_path, blend):
    out, job = tmp_path / "out", tmp_path / "job.toml"
    job.write_text(JOB.format(out=out, data=ROOT / "pipelines/jobs/tiny/data", blend=blend))
    program = os.path.abspath(os.environ["MILLRACE"])
    subprocess.run([program, "run", job], check=True, capture_output=True)
    dump = subprocess.run([program, "blend", job, "--dump", "40", "--json"], check=True, capture_output=True)
    # the folder alone is enough, wherever it is
    out = out.rename(tmp_path / "moved")
    run, splits = millrace.open_run(out), json.loads(dump.stdout)["splits"]
    for part in ("train", "valid"):
        samples = run.samples(part)
        assert len(samples) == splits[part]["len"]
        assert sha(samples.dataset_index) == splits[part]["dataset_index"]
        assert sha(samples.dataset_sample_index) == splits[part]["dataset_sample_index"]
        for d, wanted in enumerate(splits[part]["datasets"]):
            for name, array in samples.index_arrays(d).items():
                assert sha(array) == wanted[name], name
        tokens = [s.tolist() for s in samples[: len(splits[part]["samples"])]]
        assert tokens == [s["tokens"] for s in splits[part]["samples"]]
    with pytest.raises(ValueError, match="no test samples"):
        run.samples("test")
    assert run.curve()[0].tolist() == [1, 2, 3, 4] and run.curve("valid_loss")[0].tolist() == [2, 4]
    assert run.step_samples(2) == range(4, 8) and list(run.checkpoints) == [2, 4]
    assert set(run.datasets) == {"pile", "more"}
    for name, dataset in run.datasets.items():
        side = run.sidecar(name)
        assert (dataset.documents, len(dataset.tokens)) == (side["documents"], side["tokens"])
    assert sum(r["counts"]["kept"] for r in run.records) == run.manifest["curate"]["counts"]["kept"]
    starts, documents = run.histogram("avg_line_length")
    assert len(starts) == len(documents) and documents.sum() == run.manifest["curate"]["counts"]["kept"]
    assert pathlib.Path(run.checkpoints[4], "model.safetensors").exists()
