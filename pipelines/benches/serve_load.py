"""Load on `millrace serve`: time to first token, time per output token, tokens per second, beside the engine alone.

    cargo build --release
    cargo bench -p millrace-train --bench generate --no-run
    python pipelines/benches/serve_load.py --program target/release/millrace --engine target/release/deps/generate-HASH --model FOLDER

FOLDER is a Hugging Face folder or a checkpoint; train/benches/generate_beside.py makes folders of random weights. Without a tokenizer in it
or --tokenizer one is made that has a word for each id, so that every token is a chunk of text. Every client sends one request after another: prompts of --prompt ids,
answers of --tokens tokens, streamed. The figures are those of vLLM's serving benchmark: TTFT (first chunk after the request), TPOT
(the rest of the answer over its tokens but the first), ITL (between chunks), mean, median and 99th percentile. With --engine the bench
of the engine runs before and after each of --rounds, with as many streams; overhead is 1 - (tokens/s of the server) / (tokens/s of the engine), the
mean and the median of the rounds, both answers' tokens over the time of prompts and answers. The clients run on the same cores, so their work is in it.
Each round starts a server of its own: how a process's pages lie in memory decides some hundredths of its speed for as long as it lives, and would pass
for overhead of a single server in all rounds.
"""

import argparse
import bisect
import contextlib
import json
import math
import random
import select
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path


class Request:
    """One streamed request over a connection of its own. Pieces are kept as they come and read after the end: the clients run on the
    cores of the server, and an event loop with a library for HTTP costs as much for each token as the server itself."""

    def __init__(self, address, prompt, tokens):
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
        body = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.pieces, self.start = [], time.perf_counter()
        self.socket = socket.create_connection(address)
        self.socket.sendall(head.encode() + body)


def events(pieces):
    """(time, event) of each `data:` line of an answer in chunks of HTTP"""
    raw = b"".join(data for _, data in pieces)
    head, _, _ = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), raw[:400]
    assert b"transfer-encoding: chunked" in head.lower(), head
    text, ends, times, at, seen, total = b"", [], [], len(head) + 4, iter(pieces), 0
    while True:
        size, _, _ = raw[at:].partition(b"\r\n")
        length, start = int(size, 16), at + len(size) + 2
        if length == 0:
            break
        text += raw[start : start + length]
        at = start + length + 2
        while total < start + length:
            when, data = next(seen)
            total += len(data)
        ends.append(len(text))
        times.append(when)
    found, at = [], 0
    for line in text.split(b"\n"):
        at += len(line) + 1
        if line.startswith(b"data: {"):
            found.append((times[bisect.bisect_left(ends, at)], json.loads(line[6:])))
    return found


def load(address, clients, each, prompt, tokens, vocabulary):
    """(seconds to each chunk of each answer, seconds in all, seconds of the clients' own work)"""
    draw = random.Random(0)
    waiting = [[[draw.randrange(300, vocabulary) for _ in range(prompt)] for _ in range(each)] for _ in range(clients)]
    found, open_requests, poll = [], {}, select.epoll()

    def ask(own):
        if own:
            request = Request(address, own.pop(), tokens)
            open_requests[request.socket.fileno()] = request, own
            poll.register(request.socket, select.EPOLLIN)

    began, worked = time.perf_counter(), time.process_time()
    for own in waiting:
        ask(own)
    while open_requests:
        for number, _ in poll.poll():
            request, own = open_requests[number]
            data = request.socket.recv(1 << 16)
            request.pieces.append((time.perf_counter(), data))
            if not data:
                poll.unregister(number)
                del open_requests[number]
                request.socket.close()
                found.append(request)
                ask(own)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    answers = []
    for request in found:
        of_answer = events(request.pieces)
        usage = [event["usage"] for _, event in of_answer if event.get("usage")]
        assert usage and usage[-1]["completion_tokens"] == tokens, usage
        answers.append([when - request.start for when, event in of_answer if event["choices"]])
    return answers, seconds, worked


def summary(values):
    values = sorted(1000 * v for v in values)
    return {"mean_ms": round(statistics.fmean(values), 2), "median_ms": round(statistics.median(values), 2), "p99_ms": round(values[math.ceil(0.99 * len(values)) - 1], 2)}


def words(folder, path):
    """a tokenizer with a word for each id of the model"""
    count = json.loads((Path(folder) / "config.json").read_text())["vocab_size"]
    model = {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(count)}, "unk_token": "w0"}
    rest = {"truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None}
    path.write_text(json.dumps({"version": "1.0", **rest, "pre_tokenizer": {"type": "Whitespace"}, "model": model}))
    return str(path)


def engine(program, model, threads, prompt, tokens, streams):
    args = [program, "--model", model, "--threads", str(threads), "--tokens", str(tokens), "--streams", str(streams), "--length", str(prompt)]
    out = subprocess.run(args, check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    return next(line["all_tokens_s"] for line in lines if line["case"] == "streams")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--engine")
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokenizer")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--each", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    for clients in args.clients:
        found, rates, shares, engines = [], [], [], []

        def alone():
            if args.engine:
                engines.append(engine(args.engine, args.model, args.threads, args.prompt, args.tokens, clients))

        alone()
        for _ in range(args.rounds):
            with server(args) as address:
                answers, seconds, worked = load(address, clients, args.each, args.prompt, args.tokens, 30000)
            found += answers
            rates.append(len(answers) * args.tokens / seconds)
            shares.append(worked / seconds)
            alone()
        overheads = [1 - 2 * rate / (before + after) for rate, before, after in zip(rates, engines, engines[1:])]
        print(json.dumps({
            "clients": clients, "requests": len(found), "output_tokens_s": [round(rate, 1) for rate in rates],
            "ttft": summary([times[0] for times in found]),
            "tpot": summary([(times[-1] - times[0]) / (args.tokens - 1) for times in found]),
            "itl": summary([b - a for times in found for a, b in zip(times, times[1:])]),
            "clients_share_of_a_core": round(statistics.median(shares), 4),
            **(overhead(overheads, engines) if args.engine else {}),
        }), flush=True)


def overhead(rounds, engines):
    """mean and median of the rounds, and the standard error of the mean"""
    error = statistics.stdev(rounds) / math.sqrt(len(rounds)) if len(rounds) > 1 else math.nan
    return {
        "engine_tokens_s": [round(one, 1) for one in engines],
        "overhead": {"mean": round(statistics.fmean(rounds), 4), "standard_error": round(error, 4), "median": round(statistics.median(rounds), 4)},
    }


@contextlib.contextmanager
def server(args):
    """address of a server, which ends after the block"""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        command = [args.program, "serve", args.model, "--port", "0", "--port-file", str(port_file)]
        tokenizer = args.tokenizer
        if not tokenizer and not (Path(args.model) / "tokenizer.json").exists():
            tokenizer = words(args.model, Path(folder) / "tokenizer.json")
        if tokenizer:
            command += ["--tokenizer", tokenizer]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not port_file.exists():
            assert process.poll() is None, "the server ended"
            time.sleep(0.1)
        address = ("127.0.0.1", int(port_file.read_text()))
        load(address, 2, 1, args.prompt, 4, 30000)
        yield address
        process.terminate()
        process.wait(timeout=60)

main()
