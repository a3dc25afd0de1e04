"""OpenAI's Python client and a load of clients, some of whom leave, against `millrace serve`.

Needs openai 2.54.0.

    python tests/oracles/serve_clients.py MILLRACE [--model DIR] [--clients 64]

Starts the server on `tests/data/lm_eval/model` (or DIR) with a chat template, and checks completions, chat, streams, log-probabilities and
errors as the client's typed objects show them; then that many clients at once, a quarter of whom leave in the middle: every answer
equals the lone one, no sequence, block or thread stays.
"""

import argparse
import random
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import openai

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"


def serve(millrace, model, folder, *flags):
    port_file, template = Path(folder) / "port", Path(folder) / "template.jinja"
    template.write_text(TEMPLATE)
    server = subprocess.Popen([millrace, "serve", str(model), "--port", "0", "--port-file", str(port_file), "--model-name", "served",
                               "--chat-template", str(template), *flags], stderr=open(Path(folder) / "log", "w"), env={"MILLRACE_API_KEY": "secret"})
    for _ in range(600):
        if port_file.exists():
            return server, int(port_file.read_text())
        assert server.poll() is None, (Path(folder) / "log").read_text()
        time.sleep(0.1)
    raise SystemExit("the server did not start")


def check_client(client):
    models = client.models.list().data
    assert [model.id for model in models] == ["served"], models
    assert client.models.retrieve("served").id == "served"
    whole = client.completions.create(model="served", prompt="The boat", max_tokens=8, temperature=0, logprobs=3, echo=True)
    choice = whole.choices[0]
    assert choice.text.startswith("The boat") and choice.finish_reason == "length"
    assert choice.logprobs.token_logprobs[0] is None and choice.logprobs.top_logprobs[0] is None
    assert len(choice.logprobs.tokens) == whole.usage.total_tokens
    assert choice.logprobs.token_logprobs[-1] == max(choice.logprobs.top_logprobs[-1].values())
    assert "".join(choice.logprobs.tokens) == choice.text
    parts = list(client.completions.create(model="served", prompt="The boat", max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}))
    assert "The boat" + "".join(part.choices[0].text for part in parts if part.choices) == choice.text
    assert parts[-1].usage.completion_tokens == 8

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is there?"}]
    talk = client.chat.completions.create(model="served", messages=messages, max_completion_tokens=8, temperature=0, logprobs=True, top_logprobs=2, n=2)
    assert len(talk.choices) == 2 and talk.choices[0].message.role == "assistant"
    content = talk.choices[0].logprobs.content
    assert len(content) == 8 and content[0].logprob == content[0].top_logprobs[0].logprob
    assert bytes(content[0].bytes).decode() == content[0].token
    parts = list(client.chat.completions.create(model="served", messages=messages, max_completion_tokens=8, temperature=0, stream=True))
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in parts) == talk.choices[0].message.content
    with client.chat.completions.stream(model="served", messages=messages, max_completion_tokens=8, temperature=0) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
    assert "".join(deltas) == talk.choices[0].message.content

    def refused(kind, **asked):
        try:
            client.completions.create(**{"model": "served", "prompt": "a", **asked})
        except kind as error:
            return error
        raise AssertionError(f"not refused: {asked}")

    assert refused(openai.NotFoundError, model="other").body["message"] == "The model `other` does not exist."
    assert refused(openai.BadRequestError, temperature=-1).param == "temperature"
    assert "maximum context length" in refused(openai.BadRequestError, max_tokens=10**9).message
    try:
        openai.OpenAI(base_url=client.base_url, api_key="wrong", max_retries=0).models.list()
        raise AssertionError("a wrong key is taken")
    except openai.AuthenticationError:
        pass


def metrics(port):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    return {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(("vllm:num", "vllm:kv_cache_usage"))}


def threads_and_memory(server):
    status = Path(f"/proc/{server.pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    files = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
    return int(fields["Threads"]), int(fields["VmRSS"].split()[0]) // 1024, files


def check_load(client, port, server, clients):
    def ask(number):
        return {"model": "served", "prompt": f"The boat {number} follows", "max_tokens": 40 + number % 17, "temperature": 0.8, "seed": number, "extra_body": {"ignore_eos": True}}

    alone = [client.completions.create(**ask(number)).choices[0].text for number in range(clients)]
    before = threads_and_memory(server)
    wrong = []

    def talk(number):
        own = openai.OpenAI(base_url=client.base_url, api_key="secret", max_retries=0)
        for turn in range(3):
            if (number + turn) % 4 == 0:
                stream = own.completions.create(stream=True, **{**ask(number), "max_tokens": 250})
                for _ in range(random.Random(number * 3 + turn).randint(0, 5)):
                    next(stream, None)
                stream.response.close()
                continue
            text = own.completions.create(**ask(number)).choices[0].text
            if text != alone[number]:
                wrong.append((number, text, alone[number]))
        own.close()

    started = time.time()
    threads = [threading.Thread(target=talk, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.time() - started
    until = time.time() + 20
    while any(metrics(port)[name] for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")):
        assert time.time() < until, metrics(port)
        time.sleep(0.05)
    time.sleep(1.5)
    after = threads_and_memory(server)
    print(f"{clients} clients, 3 requests each, a quarter left: {seconds:.1f} s, {len(wrong)} answers differ; "
          f"threads, MB, files before {before} and after {after}")
    assert not wrong, wrong[:3]
    assert after[0] <= before[0] and after[1] <= before[1] + 64 and after[2] <= before[2] + 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("millrace")
    parser.add_argument("--model", type=Path, default=Path(__file__).parent.parent / "data" / "lm_eval" / "model")
    parser.add_argument("--clients", type=int, default=64)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server, port = serve(args.millrace, args.model, folder)
        try:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="secret", max_retries=0)
            check_client(client)
            print(f"openai {openai.__version__}: models, completions, chat, streams, log-probabilities, errors as expected")
            check_load(client, port, server, args.clients)
            client.close()
        finally:
            server.terminate()
            code = server.wait()
        print("exit code after SIGTERM:", code)
        assert code == 0


main()
