"""Lists what a job has in a bucket of S3: its objects, and its unfinished multipart uploads, which obstore cannot
list.
"""

from __future__ import annotations

from typing import Any

import boto3

from penstock.storage.layout import LogName, parse
from penstock.storage.log import newest_checkpoint
from penstock.storage.metadata_file import read_metadata
from penstock.storage.store import BrowsableStore
from tests.buckets.servers import BUCKET
from tools.object_stores import ACCESS_KEY, SECRET_KEY, Server


def s3(server: Server) -> Any:
    """Return boto3's client of a server."""
    return boto3.client(
        "s3", endpoint_url=server.url, aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY, region_name="any"
    )


def unfinished_uploads(server: Server, folder: str) -> list[str]:
    """Return the paths below a folder of the bucket whose uploads were neither completed nor aborted."""
    listed = s3(server).list_multipart_uploads(Bucket=BUCKET, Prefix=f"{folder}/")
    return sorted(upload["Key"].removeprefix(f"{folder}/") for upload in listed.get("Uploads", []))


def unnamed(job: BrowsableStore) -> tuple[list[str], dict[str, int]]:
    """Return what nothing needs that is left in the directory of a job that retains one checkpoint, and the segments,
    with their sizes, that this checkpoint names.
    """
    newest = newest_checkpoint(job)
    assert newest is not None
    named = {segment.path: segment.length_bytes for segment in read_metadata(job, newest.path).segments}
    objects = {found.path: found.size_bytes for found in job.objects("")}
    missing = {path: size for path, size in named.items() if objects.get(path) != size}
    assert not missing, "a retained checkpoint misses a segment"
    log = {path for path in objects if isinstance(parse(path), LogName)}
    return sorted(objects.keys() - named.keys() - log - {newest.path}), named
