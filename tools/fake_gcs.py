"""Fakes Google Cloud Storage's XML interface in memory, as far as obstore uses it. For tests only.

It exists because neither of the known emulators takes a put with `x-goog-if-generation-match: 0`, and answers with the
ETag that obstore wants. That Google's own service behaves so is what its documentation says; it is not tested here.

    python tools/fake_gcs.py PORT
"""

from __future__ import annotations

import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_XML = '<?xml version="1.0" encoding="UTF-8"?>'


class _Buckets:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, dict[str, tuple[bytes, int]]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.generation = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    buckets = _Buckets()

    def setup(self) -> None:
        super().setup()
        # Without this: each small answer waits for the other side's delayed acknowledgement, 40 ms.
        self.connection.setsockopt(6, 1, 1)

    def _target(self) -> tuple[str, str, dict[str, str]]:
        parts = urlsplit(self.path)
        bucket, _, name = unquote(parts.path).lstrip("/").partition("/")
        query = parse_qs(parts.query, keep_blank_values=True)
        return bucket, name, {key: values[0] for key, values in query.items()}

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        for key, text in headers.items():
            self.send_header(key.replace("_", "-"), text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, code: str, message: str) -> None:
        self._answer(status, f"{_XML}<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())

    def parse_request(self) -> bool:
        """Read a request, and refuse one of nobody, without a token, if it is about objects."""
        if not super().parse_request():
            return False
        _, name, query = self._target()
        if (name or query) and self.headers.get("authorization", "").strip() in ("", "Bearer"):
            self._body()
            self._error(403, "AccessDenied", "Anonymous caller does not have access to the object.")
            return False
        return True

    def do_PUT(self) -> None:
        bucket, name, query = self._target()
        data, buckets = self._body(), self.buckets
        with buckets.lock:
            if not name:
                buckets.objects.setdefault(bucket, {})
                return self._answer(200)
            if bucket not in buckets.objects:
                return self._no_bucket()
            if "uploadId" in query:
                buckets.uploads[query["uploadId"]][int(query["partNumber"])] = data
                return self._answer(200, etag=f'"{query["partNumber"]}"')
            objects = buckets.objects[bucket]
            if source := self.headers.get("x-goog-copy-source"):
                from_bucket, _, from_name = unquote(source).lstrip("/").partition("/")
                if from_name not in buckets.objects.get(from_bucket, {}):
                    return self._error(404, "NoSuchKey", "The specified key does not exist.")
                data = buckets.objects[from_bucket][from_name][0]
            if self.headers.get("x-goog-if-generation-match") == "0" and name in objects:
                return self._error(412, "PreconditionFailed", "At least one of the pre-conditions did not hold.")
            generation = self._store(bucket, name, data)
        return self._answer(200, etag=f'"{generation}"', x_goog_generation=str(generation))

    def _store(self, bucket: str, name: str, data: bytes) -> int:
        self.buckets.generation += 1
        self.buckets.objects[bucket][name] = (data, self.buckets.generation)
        return self.buckets.generation

    def do_POST(self) -> None:
        bucket, name, query = self._target()
        self._body()
        buckets = self.buckets
        with buckets.lock:
            if bucket not in buckets.objects:
                return self._no_bucket()
            if "uploads" in query:
                upload = uuid.uuid4().hex
                buckets.uploads[upload] = {}
                key, inner = f"<Bucket>{bucket}</Bucket><Key>{escape(name)}</Key>", f"<UploadId>{upload}</UploadId>"
                root = "InitiateMultipartUploadResult"
                return self._answer(200, f"{_XML}<{root}>{key}{inner}</{root}>".encode())
            parts = buckets.uploads.pop(query["uploadId"])
            generation = self._store(bucket, name, b"".join(parts[number] for number in sorted(parts)))
        root = "CompleteMultipartUploadResult"
        body = f'{_XML}<{root}><ETag>"{generation}"</ETag></{root}>'.encode()
        return self._answer(200, body, x_goog_generation=str(generation))

    def do_GET(self) -> None:
        bucket, name, query = self._target()
        if not bucket:
            return self._answer(200)
        with self.buckets.lock:
            if bucket not in self.buckets.objects:
                return self._no_bucket()
            if not name:
                return self._listing(bucket, query)
            found = self.buckets.objects[bucket].get(name)
        if found is None:
            return self._error(404, "NoSuchKey", "The specified key does not exist.")
        data, generation = found
        headers = {
            "etag": f'"{generation}"', "x_goog_generation": str(generation),
            "last_modified": "Mon, 23 Nov 2026 00:00:00 GMT",
        }  # fmt: skip
        asked = self.headers.get("range")
        if asked is None:
            return self._answer(200, data, **headers)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(data)), len(data) - 1) + 1
        if start >= len(data):
            return self._error(416, "InvalidRange", "The requested range cannot be satisfied.")
        return self._answer(206, data[start:end], content_range=f"bytes {start}-{end - 1}/{len(data)}", **headers)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        bucket, name, query = self._target()
        with self.buckets.lock:
            if "uploadId" in query:
                self.buckets.uploads.pop(query["uploadId"], None)
                return self._answer(204)
            if bucket not in self.buckets.objects:
                return self._no_bucket()
            gone = self.buckets.objects[bucket].pop(name, None)
        if gone is None:
            return self._error(404, "NoSuchKey", "The specified key does not exist.")
        return self._answer(204)

    def _listing(self, bucket: str, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        contents, folders = [], set()
        for name, (data, generation) in sorted(self.buckets.objects[bucket].items()):
            if not name.startswith(prefix):
                continue
            below = name[len(prefix) :]
            if delimiter and delimiter in below:
                folders.add(prefix + below.partition(delimiter)[0] + delimiter)
                continue
            contents.append(
                f"<Contents><Key>{escape(name)}</Key><Size>{len(data)}</Size><ETag>&quot;{generation}&quot;</ETag>"
                "<LastModified>2026-11-23T00:00:00.000Z</LastModified></Contents>"
            )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders)
        )
        root = "ListBucketResult"
        self._answer(200, f"{_XML}<{root}>{''.join(contents)}{common}</{root}>".encode())

    def _no_bucket(self) -> None:
        self._error(404, "NoSuchBucket", "The specified bucket does not exist.")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
