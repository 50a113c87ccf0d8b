"""The suites of storages and catalogs, races, kills and Spark on real servers: `make test-clouds`.

Azurite for Azure, versitygw for S3, fake-gcs-server for Google. The last one takes uploads by
Google's JSON interface alone, and obstore sends them by the XML one: `XmlUploads` stands between,
and leaves it to the server whether an object may be created.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, quote, unquote, urlsplit

import botocore.session

from tests.cluster.ports import free_port
from tests.waiting import eventually, reaped

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".tools"
SUITES = (
    "tests/unit/storage/test_storage.py",
    "tests/integration/test_catalogs.py",
    "tests/integration/test_races.py",
    "tests/integration/test_two_clouds.py",
    "tests/integration/test_spark_worker_changes.py",
)
ACCOUNT = "devstoreaccount1"
# Azurite's own, which its documentation prints
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def azure(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Azurite with the container `lake`."""
    port = free_port()
    command = [
        str(TOOLS / "azurite/node_modules/.bin/azurite-blob"),
        *("--silent", "--disableTelemetry", "--skipApiVersionCheck"),
        *("--location", str(folder), "--blobPort", str(port)),
    ]
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    with reaped(subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)):
        eventually(lambda: _answers(endpoint))
        date, version = formatdate(usegmt=True), "2021-08-06"
        text = (
            "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n"
            f"/{ACCOUNT}/{ACCOUNT}/lake\nrestype:container"
        )
        signature = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        signed = {
            "x-ms-date": date,
            "x-ms-version": version,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}",
        }
        _send("PUT", f"{endpoint}/lake?restype=container", b"", signed)
        told = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};"
        yield f"abfss://lake@{ACCOUNT}.dfs.core.windows.net", {"adls.connection-string": told}


@contextmanager
def versitygw(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """versitygw with the bucket `lake`."""
    port = free_port()
    (folder / "data").mkdir()
    (folder / "sidecar").mkdir()
    command = [
        str(TOOLS / "bin/versitygw"),
        *("--port", f"127.0.0.1:{port}", "--access", "key", "--secret", "secret"),
        *("posix", "--sidecar", str(folder / "sidecar"), str(folder / "data")),
    ]
    endpoint = f"http://127.0.0.1:{port}"
    with reaped(subprocess.Popen(command, stdout=subprocess.DEVNULL)):
        eventually(lambda: _answers(endpoint))
        client = botocore.session.Session().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=endpoint,
            aws_access_key_id="key",
            aws_secret_access_key="secret",  # noqa: S106
        )
        client.create_bucket(Bucket="lake")
        client.close()
        yield (
            "s3://lake",
            {
                "s3.endpoint": endpoint,
                "s3.access-key-id": "key",
                "s3.secret-access-key": "secret",
                "s3.region": "us-east-1",
            },
        )


@contextmanager
def google(_folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """fake-gcs-server with the bucket `lake`, and uploads by XML before it."""
    port = free_port()
    with XmlUploads(("127.0.0.1", 0), Uploading) as front:
        front.server = f"127.0.0.1:{port}"
        public = f"127.0.0.1:{front.server_address[1]}"
        command = [
            str(TOOLS / "bin/fake-gcs-server"),
            *("-scheme", "http", "-host", "127.0.0.1", "-port", str(port)),
            *("-public-host", public, "-log-level", "error"),
            *("-backend", "memory"),  # on a disk it answers 400 for an object in no folder
        ]
        with reaped(subprocess.Popen(command, stdout=subprocess.DEVNULL)):
            thread = Thread(target=front.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            eventually(lambda: _answers(f"http://{front.server}/storage/v1/b?project=p"))
            bucket = json.dumps({"name": "lake"}).encode()
            _send("POST", f"http://{front.server}/storage/v1/b?project=p", bucket, {})
            yield (
                "gs://lake",
                {"gcs.service.host": f"http://{public}", "gcs.oauth2.token": "any"},
            )
            front.shutdown()
            thread.join()


class XmlUploads(ThreadingHTTPServer):
    """Passes requests on; uploads by XML become uploads by JSON.

    Attributes:
        server: host and port of who answers.
        parts: of uploads that are under way.
    """

    daemon_threads = True
    request_queue_size = 256
    server: str

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.parts: dict[str, dict[int, bytes]] = {}


class Uploading(BaseHTTPRequestHandler):
    """See XmlUploads."""

    server: XmlUploads
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args: object) -> None:
        pass

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = parse_qs(url.query, keep_blank_values=True)
        _, bucket, name = [*map(unquote, url.path.split("/", 2)), ""][:3]
        if self.command == "POST" and "uploads" in query:
            upload = uuid.uuid4().hex
            self.server.parts[upload] = {}
            text = f"<Bucket>{bucket}</Bucket><Key>k</Key><UploadId>{upload}</UploadId>"
            found = f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>"
            self._reply(200, found.encode(), {})
        elif "partNumber" in query:
            self.server.parts[query["uploadId"][0]][int(query["partNumber"][0])] = body
            self._reply(200, b"", {"ETag": '"part"'})
        elif self.command == "POST" and "uploadId" in query:
            parts = self.server.parts.pop(query["uploadId"][0])
            whole = b"".join(parts[number] for number in sorted(parts))
            status, data, _ = self._upload(bucket, name, whole)
            text = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
            self._reply(status, text.encode() if status == 200 else data, {})
        elif self.command == "PUT":
            status, data, generation = self._upload(bucket, name, body)
            told = {"ETag": '"e"', "x-goog-generation": generation} if status == 200 else {}
            self._reply(status, b"" if status == 200 else data, told)
        else:
            self._reply(*self._ask(self.command, self.path, body, dict(self.headers.items())))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

    def _upload(self, bucket: str, name: str, body: bytes) -> tuple[int, bytes, str]:
        metadata = {
            key[len("x-goog-meta-") :].lower(): value
            for key, value in self.headers.items()
            if key.lower().startswith("x-goog-meta-")
        }
        described = {"name": name, "metadata": metadata}
        if self.headers["Content-Type"]:
            described["contentType"] = self.headers["Content-Type"]
        edge = uuid.uuid4().hex
        part = f"--{edge}\r\nContent-Type: application"
        data = (
            f"{part}/json\r\n\r\n{json.dumps(described)}\r\n{part}/octet-stream\r\n\r\n".encode()
            + body
            + f"\r\n--{edge}--".encode()
        )
        generation = self.headers["x-goog-if-generation-match"]
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart&name={quote(name, safe='')}"
        path += "" if generation is None else f"&ifGenerationMatch={generation}"
        told = {"Content-Type": f"multipart/related; boundary={edge}"}
        status, answer, _ = self._ask("POST", path, data, told)
        found = json.loads(answer)["generation"] if status == 200 else ""
        return status, answer, str(found)

    def _ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection(self.server.server)
        try:
            # its listing by XML takes a slash for any other name of a bucket
            told = {name: value for name, value in headers.items() if name.lower() != "host"}
            connection.request(method, path, body, {**told, "Host": self.headers["Host"]})
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        is_head = self.command == "HEAD"
        for name, value in headers.items():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date"):
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if is_head else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if not is_head:
            self.wfile.write(body)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=10).close()  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        return False
    return True


def _send(method: str, url: str, body: bytes, headers: dict[str, str]) -> None:
    request = urllib.request.Request(url, body or None, headers, method=method)  # noqa: S310
    urllib.request.urlopen(request, timeout=10).close()  # noqa: S310


def main(arguments: list[str]) -> int:
    """Run the suites; further arguments are pytest's."""
    servers = {"azure": azure, "versitygw": versitygw, "google": google}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        found = {}
        for name, server in servers.items():
            (Path(folder) / name).mkdir()
            found[name] = running.enter_context(server(Path(folder) / name))
        command = [sys.executable, "-m", "pytest", "-q", "-k", " or ".join(servers), *SUITES]
        environ = {**os.environ, "LAKEHOUSE_CLOUDS": json.dumps(found)}
        return subprocess.call([*command, *arguments], cwd=ROOT, env=environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
