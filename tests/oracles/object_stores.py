"""Reads the same WARC file from disk and from object stores, and compares the documents.

    python object_stores.py MILLRACE ARCHIVE.warc.gz [AZURITE_BLOB]

MILLRACE is built with `--features object-store`. S3 is moto's server, Google's store
gcp-storage-emulator, Azure's azurite (npm; skipped without its program). That emulator of Google's store
has no XML listing and sends no Last-Modified, which the `object_store` crate asks for: its two cases are
told and not counted. Between Millrace and S3
stands a proxy that answers every third request with 503 and breaks every third answer off in the
middle. Prints one line a case; exits 1 if any differs.
"""

import http.client
import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

import zstandard

millrace, archive = sys.argv[1:3]
azurite = sys.argv[3] if len(sys.argv) > 3 else None
folder = pathlib.Path(tempfile.mkdtemp(prefix="object-stores-"))
failed = []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing answers at port {port}")


class Proxy(http.server.BaseHTTPRequestHandler):
    """Passes requests on to `target`; every third is refused, every third answer breaks off."""

    protocol_version = "HTTP/1.1"
    target, count, refused, broken = None, 0, 0, 0
    lock = threading.Lock()

    def do_GET(self):
        with Proxy.lock:
            Proxy.count += 1
            turn = Proxy.count % 3
            Proxy.refused += turn == 0
        if turn == 0:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        upstream = http.client.HTTPConnection("127.0.0.1", Proxy.target)
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            upstream.putheader(name, value)
        upstream.endheaders()
        answer = upstream.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(body)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        if turn == 1 and len(body) > 1000:
            with Proxy.lock:
                Proxy.broken += 1
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


def documents(name, path, options=None, prefix="", environment=None, split_mb=0):
    """Texts of the clean files of a job on `path`, or what the program said."""
    out = folder / name
    table = "".join(f"{json.dumps(k)} = {json.dumps(v)}, " for k, v in (options or {}).items())
    job = folder / f"{name}.toml"
    job.write_text(
        f"name = 'stores'\nout = {json.dumps(str(out))}\n[curate]\nsplit_mb = {split_mb}\n"
        f"inputs = [{{ path = {json.dumps(path)}, format = 'warc', source = 's', prefix = {json.dumps(prefix)}, "
        f"options = {{ {table.rstrip(', ')} }} }}]\n[[curate.step]]\nextract = {{}}\n"
    )
    done = subprocess.run(
        [millrace, "curate", str(job)], capture_output=True, text=True, env={**os.environ, **(environment or {})}
    )
    if done.returncode != 0:
        return done.stderr.strip()
    texts = []
    for file in sorted((out / "clean").glob("*.zst")):
        with zstandard.open(file, "rt", encoding="utf-8") as lines:
            texts += [(json.loads(line)["url"], json.loads(line)["text"]) for line in lines]
    return texts


def compare(name, want, counted=True, **settings):
    start = time.time()
    found = documents(name, **settings)
    same = found == want
    if not same and counted:
        failed.append(name)
    told = f"{len(found)} documents" if isinstance(found, list) else found
    print(f"{'same' if same else 'DIFFERENT'}  {name}: {told} ({time.time() - start:.1f} s)", flush=True)


base = os.path.basename(archive)
want = documents("disk", archive)
print(f"disk: {len(want)} documents")

# S3 ---------------------------------------------------------------------------------------------
import boto3  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402

port = free_port()
ThreadedMotoServer(port=port, verbose=False).start()
keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
s3 = boto3.client(
    "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
    aws_access_key_id="test", aws_secret_access_key="test",
)
s3.create_bucket(Bucket="bucket")
for key in (f"crawl/a/{base}", f"crawl/b/{base}"):
    s3.upload_file(archive, "bucket", key)
Proxy.target = port
proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
threading.Thread(target=proxy.serve_forever, daemon=True).start()
paths = folder / "warc.paths"
paths.write_text(f"crawl/a/{base}\ncrawl/b/{base}\n")
for name, at in (("s3", port), ("s3-refusing", proxy.server_port)):
    options = {"aws_endpoint": f"http://127.0.0.1:{at}", "aws_allow_http": "true", "aws_region": "us-east-1"}
    common = {"options": options, "environment": keys}
    compare(f"{name}-object", want, path=f"s3://bucket/crawl/a/{base}", **common)
    compare(f"{name}-pattern", want * 2, path="s3://bucket/crawl/**/*.gz", **common)
    compare(f"{name}-folder", want * 2, path="s3://bucket/crawl/", **common)
    compare(f"{name}-list", want * 2, path=str(paths), prefix="s3://bucket/", **common)
    compare(f"{name}-parts", want, path=f"s3://bucket/crawl/a/{base}", split_mb=1, **common)
print(f"proxy: {Proxy.count} requests, {Proxy.refused} answered with 503, {Proxy.broken} broken off")

# Google -----------------------------------------------------------------------------------------
from gcp_storage_emulator.server import create_server  # noqa: E402
import urllib.request  # noqa: E402

port = free_port()
create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket").start()
wait_for(port)
with open(archive, "rb") as file:
    urllib.request.urlopen(urllib.request.Request(
        f"http://127.0.0.1:{port}/upload/storage/v1/b/bucket/o?uploadType=media&name=crawl/{base}",
        data=file.read(), headers={"Content-Type": "application/octet-stream"}, method="POST",
    )).read()
account = {
    "gcs_base_url": f"http://127.0.0.1:{port}", "disable_oauth": True, "client_email": "", "private_key": "",
    "private_key_id": "",
}
options = {"google_service_account_key": json.dumps(account), "allow_http": "true"}
compare("gs-object", want, counted=False, path=f"gs://bucket/crawl/{base}", options=options)
compare("gs-folder", want, counted=False, path="gs://bucket/crawl/", options=options)

# Azure ------------------------------------------------------------------------------------------
if azurite:
    port = free_port()
    server = subprocess.Popen(
        [azurite, "--blobPort", str(port), "--location", str(folder / "azurite"), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    )
    try:
        wait_for(port)
        # the account and key that every azurite has
        account = "devstoreaccount1"
        key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
        from azure.storage.blob import BlobServiceClient

        service = BlobServiceClient(f"http://127.0.0.1:{port}/{account}", credential=key)
        service.create_container("box")
        with open(archive, "rb") as file:
            service.get_blob_client("box", f"crawl/{base}").upload_blob(file)
        options = {
            "azure_storage_account_name": account, "azure_storage_account_key": key,
            "azure_endpoint": f"http://127.0.0.1:{port}/{account}", "allow_http": "true",
        }
        compare("az-object", want, path=f"az://box/crawl/{base}", options=options)
        compare("az-folder", want, path="az://box/crawl/", options=options)
    finally:
        server.terminate()

if failed:
    sys.exit("different: " + ", ".join(failed))
os._exit(0)
