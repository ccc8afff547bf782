"""Makes obstore's clients of a bucket from a job's options, the environment and the machine."""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Mapping

from penstock.common.options import ConfigOption, ObjectStoreOptions
from penstock.common.time import Duration
from penstock.storage.location import AZURE, GS, RemoteLocation
from penstock.storage.store import StoreError
from penstock.storage.store_settings import StoreSettings

CONNECT_TIMEOUT = timedelta(seconds=5)
_CREDENTIALS_LIFE = timedelta(minutes=5)
"""The time after which a file of credentials is read again, because another program may have renewed them."""

_HINTS = {
    "s3": "s3.access-key and s3.secret-key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in ~/.aws, or "
    "the machine's role",
    "gs": "penstock.checkpoint-storage.gs.service-account, or GOOGLE_APPLICATION_CREDENTIALS, or the machine's account",
    "azure": "fs.azure.account.key.<account> or penstock.checkpoint-storage.azure.sas-token, or "
    "AZURE_STORAGE_ACCOUNT_KEY, or the machine's identity",
}
_ENDPOINTS = {
    "s3": ObjectStoreOptions.S3_ENDPOINT.key,
    "gs": ObjectStoreOptions.GS_ENDPOINT.key,
    "azure": ObjectStoreOptions.AZURE_ENDPOINT.key,
}


@dataclass(frozen=True)
class Clients:
    """Holds the two clients of a bucket. `once` sends each request once, because who repeats a request must know what
    became of it; `repeating` is for the parts of a multipart upload, which only the client sees. `service` names what
    is asked, for messages.
    """

    once: Any
    repeating: Any
    service: str
    endpoint_key: str
    credentials: str


def import_obstore(uri: str, kind: str) -> Any:
    """Import the client library. Raises `StoreError` if it is not installed."""
    try:
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise StoreError(
            f"{uri}: needs obstore, which is not installed here ({error}): pip install 'penstock[{kind}]', on the "
            "driver and on the executors"
        ) from None
    return obstore


@lru_cache(maxsize=32)
def clients_of(bucket: RemoteLocation, settings: StoreSettings) -> Clients:
    """Return the clients of a bucket, which all its folders share, with their connections. Raises `StoreError`."""
    obstore = import_obstore(bucket.uri, bucket.kind)
    make, service = {AZURE: _azure, GS: _google}.get(bucket.kind, _amazon)(obstore, bucket, settings)
    options: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT,
        "timeout": _length(settings, ObjectStoreOptions.REQUEST_TIMEOUT),
        # Plain HTTP goes where an endpoint says so, and nowhere else.
        "allow_http": service.startswith("http://"),
    }
    retry = {"retry_timeout": _length(settings, ObjectStoreOptions.RETRY_TIMEOUT)}
    try:
        once = make(client_options=options, retry_config={"max_retries": 0})
        repeating = make(client_options=options, retry_config=retry)
    except (ValueError, obstore.exceptions.BaseError) as error:
        said = str(error).partition("\n")[0]
        raise StoreError(f"{bucket.uri} cannot be opened: {said}") from None
    return Clients(once, repeating, service, _ENDPOINTS[bucket.kind], _HINTS[bucket.kind])


def _length(settings: StoreSettings, option: ConfigOption[Duration]) -> timedelta:
    return settings.get(option).to_timedelta()


def _set(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


# ---- Amazon S3, and what speaks as it does ----------------------------------------------------------------------


def amazon_settings(
    bucket: RemoteLocation, settings: StoreSettings
) -> tuple[dict[str, Any], Callable[[], Mapping[str, Any]] | None]:
    """Return the settings of a client of S3, under obstore's names, and the provider of its credentials, if they are no
    settings. Raises `StoreError`."""
    endpoint = settings.get(ObjectStoreOptions.S3_ENDPOINT) or _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    region = settings.get(ObjectStoreOptions.S3_REGION) or _environment("AWS_REGION", "AWS_DEFAULT_REGION")
    config = _set(
        endpoint=endpoint,
        region=region,
        access_key_id=settings.get(ObjectStoreOptions.S3_ACCESS_KEY),
        secret_access_key=settings.get(ObjectStoreOptions.S3_SECRET_KEY),
        session_token=settings.get(ObjectStoreOptions.S3_SESSION_TOKEN),
    )
    if ("access_key_id" in config) != ("secret_access_key" in config):
        keys = (ObjectStoreOptions.S3_ACCESS_KEY.key, ObjectStoreOptions.S3_SECRET_KEY.key)
        raise StoreError(f"{bucket.uri}: {keys[0]} and {keys[1]} belong together, and only one of them is set")
    by_path = settings.get(ObjectStoreOptions.S3_PATH_STYLE_ACCESS) or endpoint is not None
    config["virtual_hosted_style_request"] = not by_path
    config["disable_bulk_delete"] = True  # not every service has bulk deletion, and we delete one object at a time
    return config, None if "access_key_id" in config else _amazon_credentials()


def _amazon(obstore: Any, bucket: RemoteLocation, settings: StoreSettings) -> tuple[Callable[..., Any], str]:
    config, provider = amazon_settings(bucket, settings)

    def make(**options: Any) -> Any:
        given = {} if provider is None else {"credential_provider": provider}
        return obstore.store.S3Store(bucket.authority, config=config, **options, **given)

    return make, config.get("endpoint") or f"S3 in {config.get('region') or 'us-east-1'}"


def _amazon_credentials() -> Callable[[], Mapping[str, Any]] | None:
    """Return the provider of credentials that obstore does not find itself: credentials in ~/.aws and, with boto3, all
    of its sources, such as single sign-on.
    """
    own = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
           "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
    if _environment(*own):
        return None
    if _profile_credentials() is not None:
        return lambda: _profile_credentials() or {}
    if not (Path.home() / ".aws" / "config").exists():
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider

        provider: Callable[[], Mapping[str, Any]] = Boto3CredentialProvider(ttl=_CREDENTIALS_LIFE)
    except (ImportError, ValueError):
        return None
    return provider


def _profile_credentials() -> Mapping[str, Any] | None:
    """Return the keys of the user's profile in ~/.aws/credentials, if it has some."""
    path = Path(_environment("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials")
    profiles = configparser.ConfigParser(interpolation=None)
    try:
        profiles.read(path, encoding="utf-8")
        profile = profiles[_environment("AWS_PROFILE") or "default"]
        return {
            "access_key_id": profile["aws_access_key_id"],
            "secret_access_key": profile["aws_secret_access_key"],
            "token": profile.get("aws_session_token"),
            "expires_at": datetime.now(UTC) + _CREDENTIALS_LIFE,
        }
    except (OSError, KeyError, configparser.Error, UnicodeDecodeError):
        return None


# ---- Google and Azure -------------------------------------------------------------------------------------------


def _google(obstore: Any, bucket: RemoteLocation, settings: StoreSettings) -> tuple[Callable[..., Any], str]:
    endpoint = settings.get(ObjectStoreOptions.GS_ENDPOINT)
    account = settings.get(ObjectStoreOptions.GS_SERVICE_ACCOUNT)
    named = account or _environment("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT")
    config = _set(base_url=endpoint, service_account=account)
    # A service that is not Google's does not know the tokens that Google's machines give.
    given = {"credential_provider": lambda: {"token": "none", "expires_at": None}} if endpoint and not named else {}

    def make(**options: Any) -> Any:
        return obstore.store.GCSStore(bucket.authority, config=config, **options, **given)

    return make, endpoint or "Google Cloud Storage"


def _azure(obstore: Any, bucket: RemoteLocation, settings: StoreSettings) -> tuple[Callable[..., Any], str]:
    container, at, host = bucket.authority.partition("@")
    account = host.partition(".")[0] if at else settings.get(ObjectStoreOptions.AZURE_ACCOUNT)
    account = account or _environment("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise StoreError(
            f"{bucket.uri} names no storage account: set {ObjectStoreOptions.AZURE_ACCOUNT.key}, or write "
            f"abfss://{container}@<account>.dfs.core.windows.net/{bucket.path}"
        )
    endpoint = settings.get(ObjectStoreOptions.AZURE_ENDPOINT)
    config = _set(
        account_name=account,
        account_key=settings.azure_key(account),
        sas_key=settings.get(ObjectStoreOptions.AZURE_SAS_TOKEN),
        endpoint=endpoint,
    )

    def make(**options: Any) -> Any:
        return obstore.store.AzureStore(container, config=config, **options)

    return make, endpoint or f"https://{account}.blob.core.windows.net"


def _environment(*names: str) -> str | None:
    return next((text for name in names if (text := os.environ.get(name))), None)
