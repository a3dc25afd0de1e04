"""lm-evaluation-harness's `local-completions` against `millrace serve`, beside its `hf` backend on the same model.

Needs lm_eval 0.4.13 (extras hf and api), torch, transformers, datasets, scikit-learn; checked with torch 2.13, transformers 4.57.6.

    python tests/oracles/serve_lm_eval.py MILLRACE [--model DIR --rows DIR] [--tasks A,B] [--dtype float64]

Starts the server on `tests/data/lm_eval/model` (or DIR), evaluates every task of `lm_eval_tasks.py` with both, and fails unless all
log-likelihoods agree within 1e-4, all greedy flags and all generated texts are the same. Rolling tasks are left out: the
client's windows are one token shorter. So are documents that the client cuts because they do not fit beside its one generated token.
With a model of 135M parameters (SmolLM2) log-likelihoods of 70 to 180 nats are up to 6.1e-4 away from torch in float32, and up to 1.2e-4 from torch in float64,
which `--dtype float64` asks for.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lm_eval_tasks
from lm_eval.models.openai_completions import LocalCompletionsAPI


def serve(millrace, model, folder):
    port_file = Path(folder) / "port"
    server = subprocess.Popen([millrace, "serve", str(model), "--port", "0", "--port-file", str(port_file), "--model-name", "served"],
                              stderr=open(Path(folder) / "log", "w"))
    for _ in range(600):
        if port_file.exists():
            return server, int(port_file.read_text())
        assert server.poll() is None, (Path(folder) / "log").read_text()
        time.sleep(0.1)
    raise SystemExit("the server did not start")


def lengths(lm, document):
    return [len(lm.tok_encode(context + continuation)) for context, continuation in document.get("requests", [])]


def main():
    data = Path(__file__).parent.parent / "data" / "lm_eval"
    parser = argparse.ArgumentParser()
    parser.add_argument("millrace")
    parser.add_argument("--model", type=Path, default=data / "model")
    parser.add_argument("--rows", type=Path, default=data / "rows")
    parser.add_argument("--tasks")
    parser.add_argument("--max-length", type=int, default=320)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    args = parser.parse_args()
    names = args.tasks.split(",") if args.tasks else [
        task for task in lm_eval_tasks.CASES
        if task != "wikitext" and list(args.rows.glob(f"{lm_eval_tasks.ROWS_OF.get(task, task)}.*.jsonl"))]
    cases = [(task, shots) for task in names for shots in lm_eval_tasks.CASES[task][1]]
    # standard errors are not compared
    lm_eval_tasks.BOOTSTRAP = 0
    hf = lm_eval_tasks.hf_backend(str(args.model), dtype=args.dtype)
    wanted = lm_eval_tasks.evaluate(hf, args.rows.resolve(), cases)
    with tempfile.TemporaryDirectory() as folder:
        server, port = serve(args.millrace, args.model, folder)
        try:
            api = LocalCompletionsAPI(model="served", base_url=f"http://127.0.0.1:{port}/v1/completions", tokenizer_backend="huggingface",
                                      tokenizer=str(args.model), max_length=args.max_length, num_concurrent=8, batch_size=4)
            found = lm_eval_tasks.evaluate(api, args.rows.resolve(), cases)
        finally:
            server.terminate()
            server.wait()
    documents = likelihoods = flags = texts = cut = 0
    worst = 0.0
    wrong = []
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours["task"] == theirs["task"]
        for a, b in zip(ours["documents"], theirs["documents"], strict=True):
            documents += 1
            if max(lengths(hf, b), default=0) > args.max_length - 1:
                cut += 1
                continue
            for x, y in zip(a.get("log_likelihoods", []), b.get("log_likelihoods", []), strict=True):
                likelihoods += 1
                worst = max(worst, abs(x - y))
                if abs(x - y) > 1e-4:
                    wrong.append((ours["task"], a["doc_id"], x, y))
            if a.get("is_greedy") != b.get("is_greedy"):
                wrong.append((ours["task"], a["doc_id"], a.get("is_greedy"), b.get("is_greedy")))
            flags += len(a.get("is_greedy", []))
            texts += "response" in a
            if a.get("response") != b.get("response"):
                wrong.append((ours["task"], a["doc_id"], a.get("response"), b.get("response")))
    print(f"{len(cases)} cases of {len(names)} tasks, {documents} documents ({cut} cut): {likelihoods} log-likelihoods, largest difference {worst:.2e}; "
          f"{flags} greedy flags; {texts} generated texts; {len(wrong)} differ")
    for line in wrong[:20]:
        print("differs:", *line)
    sys.exit(bool(wrong) or likelihoods == 0)


main()
