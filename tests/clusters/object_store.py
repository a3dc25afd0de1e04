"""Runs a curation on machines that share nothing but an object store, and compares the result with that of one process.

    python object_store.py MILLRACE

MILLRACE is built with `--features object-store`; Python has moto[server] 5 and boto3. Three folders stand for three machines.
They share an S3 bucket (moto's server) behind a proxy that answers some requests with 503, breaks answers off in the middle,
and keeps the answers of some puts and removals to itself. Tasks are killed at random moments and started again, one of them runs on two
machines at a time, and the bucket holds a record of another job at the start. Then one machine finishes the job, and the
same command again finds it done. Then the job loses an input, and the bucket its shards, in runs that are killed as well. At last
documents are taken down, by processes that are killed, and the bucket has the files of a folder from which they were taken down.
Exits 1 if a byte differs.
"""

import hashlib
import http.client
import http.server
import json
import logging
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import boto3
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)

millrace = os.path.abspath(sys.argv[1])
here = pathlib.Path(__file__).resolve().parent
work = pathlib.Path(tempfile.mkdtemp(prefix="millrace-store-"))
TASKS = 4


class Proxy(http.server.BaseHTTPRequestHandler):
    """Passes requests on to `target`, not all of them well."""

    protocol_version = "HTTP/1.1"
    target, count, refused, broken, unanswered = None, 0, 0, 0, 0
    lock = threading.Lock()

    def pass_on(self):
        with Proxy.lock:
            Proxy.count += 1
            turn = Proxy.count
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if turn % 5 == 0:
            Proxy.refused += 1
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        upstream = http.client.HTTPConnection("127.0.0.1", Proxy.target)
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            upstream.putheader(name, value)
        upstream.endheaders(body)
        answer = upstream.getresponse()
        back = answer.read()
        if self.command in ("PUT", "DELETE") and turn % 11 == 0:
            Proxy.unanswered += 1
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(back)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.command == "GET" and turn % 3 == 0 and len(back) > 1000:
            Proxy.broken += 1
            self.wfile.write(back[: len(back) // 2])
            self.close_connection = True
            return
        self.wfile.write(back)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

    def log_message(self, *_):
        pass


with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
ThreadedMotoServer(port=port, verbose=False).start()
s3 = boto3.client(
    "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
    aws_access_key_id="test", aws_secret_access_key="test",
)
s3.create_bucket(Bucket="bucket")
Proxy.target = port
proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
# clients that were killed
proxy.handle_error = lambda *_: None
threading.Thread(target=proxy.serve_forever, daemon=True).start()

tables = subprocess.run(
    ["bash", "-c", f"repository={here.parent.parent}; . {here}/common.sh; curation"],
    capture_output=True, text=True, check=True,
).stdout
job = work / "job.toml"
job.write_text(
    f'name = "store"\nout = "{work}/first"\nexecutor = "kubernetes"\n'
    f'[kubernetes]\nimage = "millrace"\ntasks = {TASKS}\n'
    f'[store]\nurl = "s3://bucket/runs/one"\n{tables}'
)
environment = {
    **os.environ, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1",
    "AWS_ENDPOINT": f"http://127.0.0.1:{proxy.server_port}", "AWS_ALLOW_HTTP": "true",
}


def command(*args):
    return [millrace, *map(str, args)]


def ends(args, tries=30):
    """Runs a command until it ends well, as a scheduler would; what it said when it did not is shown."""
    for _ in range(tries):
        done = subprocess.run(args, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return done
        print("   ended with:", done.stderr.strip().splitlines()[-1][:220], flush=True)
    sys.exit(f"does not end well: {args}")


print("== one process, no store")
alone = work / "alone.toml"
alone.write_text(f'name = "store"\nout = "{work}/alone"\n{tables}')
subprocess.run(command("run", alone), check=True, capture_output=True)

print("== the job is put into the store; a record of another job lies there already")
s3.put_object(
    Bucket="bucket", Key="runs/one/records/curate/00000.json",
    Body=b'{"fingerprint":"another","outputs":[],"counts":{},"seconds":0.0,"peak_rss_bytes":0}',
)
ends(command("run", job))

print("== tasks on three machines, killed at random")
random.seed(7)
kills = 0


def machine(number, indices):
    global kills
    for index in indices:
        args = command(
            "task", "s3://bucket/runs/one/job.toml", "--stage", "curate", "--index", index, "--of", TASKS,
            "--set", f"out={work}/machine-{number}", "--set", "curate.journal_mb=0",
        )
        for _ in range(3):
            task = subprocess.Popen(args, env=environment, stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0.05, 1.5))
            if task.poll() is None:
                task.kill()
                kills += 1
            task.wait()
        ends(args)


# task 0 is done on two machines at a time
threads = [threading.Thread(target=machine, args=a) for a in ((1, [0, 1]), (2, [0, 2]), (3, [3]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"   {kills} tasks killed")

print("== a fourth machine sees it and finishes the job")
last = ["s3://bucket/runs/one/job.toml", "--set", f"out={work}/last"]
told = json.loads(ends(command("status", *last, "--json")).stdout)
print("   status:", {k: told[k] for k in ("shards", "shards_done", "records", "kept", "tasks_running")})
finish = command("run", *last, "--set", 'executor="local"')
ends(finish)
again = ends(finish)
assert "done before" in again.stderr, again.stderr


def sums(folder):
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.name.startswith(".") and name.split("/")[0] not in (
            "records", "job.toml", "manifest.json", "shards.json",
        ):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def downloaded(folder):
    """The bucket's objects as files of a folder."""
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="runs/one/"):
        for entry in page.get("Contents", []):
            path = folder / entry["Key"].removeprefix("runs/one/")
            path.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file("bucket", entry["Key"], str(path))
    return folder


print("== compared")
store = downloaded(work / "store")
want = sums(work / "alone")
failed = False
for name, folder, without in (("store", store, ()), ("last machine", work / "last", ("dropped",))):
    expected = {k: v for k, v in want.items() if k.split("/")[0] not in without}
    found = sums(folder)
    different = [k for k in sorted(expected | found) if expected.get(k) != found.get(k)]
    failed |= bool(different)
    print(f"   {name}: {len(expected)} files, {len(different)} differ", different[:5])

print("== an object that lost its end is found out, its shard done again")
key = next(k for k in sorted(want) if k.startswith("clean/") and k.endswith(".sig"))
body = s3.get_object(Bucket="bucket", Key=f"runs/one/{key}")["Body"].read()
s3.put_object(Bucket="bucket", Key=f"runs/one/{key}", Body=body[:-1] + b"?")
shutil.rmtree(work / "last")
done = ends(finish)
assert "does not have the checksum of its record" in done.stderr, done.stderr
body_now = s3.get_object(Bucket="bucket", Key=f"runs/one/{key}")["Body"].read()
failed |= body_now != body
print("   the object is", "different" if body_now != body else "as it was")

print("== the job loses an input: the bucket loses its shards")
fewer = ["--set", f'curate.inputs.1.path="{here.parent.parent}/pipelines/jobs/tiny/data/pile-00000.jsonl.zst"']
before = len(os.listdir(work / "alone/records/curate"))
subprocess.run(command("run", alone, *fewer), check=True, capture_output=True)
records = sorted(os.listdir(work / "alone/records/curate"))
planned = ends([*finish, *fewer, "--plan"]).stdout
assert "s3://bucket/runs/one/clean/" in planned, planned
kills = 0
for _ in range(4):
    started = subprocess.Popen([*finish, *fewer], env=environment, stderr=subprocess.DEVNULL)
    time.sleep(random.uniform(0.05, 1.0))
    if started.poll() is None:
        started.kill()
        kills += 1
    started.wait()
ends([*finish, *fewer])
store = downloaded(work / "store-of-fewer")
assert sorted(os.listdir(store / "records/curate")) == records, os.listdir(store / "records/curate")
want, found = sums(work / "alone"), sums(store)
different = [k for k in sorted(want | found) if want.get(k) != found.get(k)]
failed |= bool(different)
print(f"   {before} shards before, {len(records)} after, {kills} runs killed; {len(want)} files, {len(different)} differ", different[:5])
print("== documents are taken down, by processes that are killed")
samples = (work / "alone/samples.jsonl").read_text().splitlines()
opt_outs = work / "opt-outs.txt"
opt_outs.write_text("".join(f"id:{json.loads(line)['id']}\n" for line in samples[::2]))
subprocess.run(command("takedown", opt_outs, "--corpus", alone), check=True, capture_output=True)
down = command("takedown", opt_outs, "--json", "--corpus", job)
kills = refused = 0


def is_listed():
    """Whether a takedown has begun to change the bucket."""
    return s3.list_objects_v2(Bucket="bucket", Prefix="runs/one/takedown/commit.json")["KeyCount"] > 0


for i in range(8):
    started = subprocess.Popen(down, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while i % 2 and started.poll() is None and not is_listed():
        time.sleep(0.01)
    time.sleep(random.uniform(0.0, 0.5))
    if started.poll() is None:
        started.kill()
        kills += 1
    started.wait()
    if is_listed():
        refused += 1
        done = subprocess.run([*finish, *fewer], env=environment, capture_output=True, text=True)
        assert done.returncode and "run `millrace takedown` again" in done.stderr, done.stderr
told = json.loads(ends(down).stdout)
store = downloaded(work / "store-of-takedown")
want, found = sums(work / "alone"), sums(store)
own = [k for k in want | found if k.startswith("takedown/")]
different = [k for k in sorted(want | found) if want.get(k) != found.get(k) and k not in own]
failed |= bool(different) or not told[0]["takedowns"][0]["documents"]
print(
    f"   {told[0]['takedowns'][0]['documents']} documents, {kills} processes killed, {refused} left a list that a run refused; "
    f"{len(want)} files, {len(different)} differ", different[:5], sorted(own),
)
print(
    f"proxy: {Proxy.count} requests, {Proxy.refused} answered with 503, {Proxy.broken} broken off, "
    f"{Proxy.unanswered} puts and removals without an answer"
)
shutil.rmtree(work)
sys.stdout.flush()
os._exit(1 if failed else 0)
