"""Defines the options of object stores and HDFS: how they are reached, and with which credentials."""

from __future__ import annotations

from penstock.common.options.option import BOOLEAN, DURATION, MEMORY, STRING, ConfigOption, positive
from penstock.common.time import Duration

AZURE_KEY_PREFIX = "fs.azure.account.key."
"""Begins the key of Flink's option that holds an Azure account's key: `fs.azure.account.key.<account>.dfs.core…`."""

SECRET_KEYS = frozenset({"s3.secret-key", "s3.session-token", "penstock.checkpoint-storage.azure.sas-token"})

PART_BYTES_MIN = 5 * 1024**2


def is_secret(key: str) -> bool:
    """Test whether the value of an option must not be shown.

    Args:
        key: The option's key.

    Returns:
        True if it is a secret.
    """
    return key in SECRET_KEYS or key.startswith(AZURE_KEY_PREFIX)


def _at_least_a_part(value: int) -> str | None:
    return None if value >= PART_BYTES_MIN else "S3 takes no parts of less than 5 mb"


class ObjectStoreOptions:
    """Holds the options of object stores. What is not set comes from the environment, as with the store's own tools."""

    S3_ENDPOINT: ConfigOption[str | None] = ConfigOption(
        "s3.endpoint",
        STRING,
        None,
        "The URL of an S3 service other than Amazon's, as http://127.0.0.1:9000. Not set: AWS_ENDPOINT_URL_S3, "
        "AWS_ENDPOINT_URL, or Amazon's of the region.",
    )
    S3_ACCESS_KEY: ConfigOption[str | None] = ConfigOption(
        "s3.access-key",
        STRING,
        None,
        "The access key of S3. Not set: the environment's, the profile's in ~/.aws, or the machine's role.",
        deprecated_keys=("s3.access.key",),
    )
    S3_SECRET_KEY: ConfigOption[str | None] = ConfigOption(
        "s3.secret-key",
        STRING,
        None,
        "The secret key that belongs to s3.access-key.",
        deprecated_keys=("s3.secret.key",),
    )
    S3_SESSION_TOKEN: ConfigOption[str | None] = ConfigOption(
        "s3.session-token",
        STRING,
        None,
        "The session token that belongs to s3.access-key, if that is a temporary one.",
    )
    S3_REGION: ConfigOption[str | None] = ConfigOption(
        "s3.region",
        STRING,
        None,
        "The region of the bucket. Not set: AWS_REGION, AWS_DEFAULT_REGION, or us-east-1.",
        deprecated_keys=("s3.endpoint.region",),
    )
    S3_PATH_STYLE_ACCESS = ConfigOption(
        "s3.path.style.access",
        BOOLEAN,
        False,
        "Name the bucket in the path of a request, not in its host. Always on if s3.endpoint is set.",
        deprecated_keys=("s3.path-style-access",),
    )
    S3_PART_BYTES = ConfigOption(
        "s3.upload.min.part.size",
        MEMORY,
        8 * 1024**2,
        "The size of a part of a multipart upload, for all object stores. What is smaller is uploaded by one request.",
        check=_at_least_a_part,
    )
    AZURE_ACCOUNT: ConfigOption[str | None] = ConfigOption(
        "penstock.checkpoint-storage.azure.account",
        STRING,
        None,
        "The storage account of az:// URIs, which do not name it. Its key is fs.azure.account.key.<account>, as in "
        "Flink, or comes from AZURE_STORAGE_ACCOUNT_KEY, a service principal or a managed identity.",
    )
    AZURE_SAS_TOKEN: ConfigOption[str | None] = ConfigOption(
        "penstock.checkpoint-storage.azure.sas-token",
        STRING,
        None,
        "A shared access signature, instead of the account's key.",
    )
    AZURE_ENDPOINT: ConfigOption[str | None] = ConfigOption(
        "penstock.checkpoint-storage.azure.endpoint",
        STRING,
        None,
        "The URL of the blob service, if it is not https://<account>.blob.core.windows.net.",
    )
    GS_ENDPOINT: ConfigOption[str | None] = ConfigOption(
        "penstock.checkpoint-storage.gs.endpoint",
        STRING,
        None,
        "The URL of Google Cloud Storage, if it is not Google's own. Such a service is asked without credentials, "
        "unless a service account is named.",
    )
    GS_SERVICE_ACCOUNT: ConfigOption[str | None] = ConfigOption(
        "penstock.checkpoint-storage.gs.service-account",
        STRING,
        None,
        "The path of a service account's JSON file on driver and executors. Not set: GOOGLE_APPLICATION_CREDENTIALS, "
        "gcloud's own, or the machine's account.",
    )
    KERBEROS_KEYTAB: ConfigOption[str | None] = ConfigOption(
        "security.kerberos.login.keytab",
        STRING,
        None,
        "The path of a keytab on driver and executors, with which HDFS is used. Not set: the ticket of kinit.",
    )
    KERBEROS_PRINCIPAL: ConfigOption[str | None] = ConfigOption(
        "security.kerberos.login.principal",
        STRING,
        None,
        "The Kerberos principal of security.kerberos.login.keytab, as me@EXAMPLE.COM.",
    )
    REQUEST_TIMEOUT = ConfigOption(
        "penstock.checkpoint-storage.request-timeout",
        DURATION,
        Duration.of_seconds(30),
        "How long one request to an object store may take, with its data.",
        check=positive,
    )
    RETRY_TIMEOUT = ConfigOption(
        "penstock.checkpoint-storage.retry-timeout",
        DURATION,
        Duration.of_seconds(30),
        "How long a request to an object store is repeated while it fails for a reason that may pass. 0: never.",
    )
