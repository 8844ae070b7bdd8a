"""The settings that several programs share: logs, and the connection to the tree store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from thoughtbeam.runtime.settings import Form, SettingError, check_settings, setting

A_DAY = 24 * 3600.0

_MASK = "***"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
# What redis-py takes in a URL and we have a use for; anything else would fail at the first command.
_URL_OPTIONS = {"db", "password", "username", "client_name"}
_TLS_OPTIONS = {"ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_keyfile"}


def _is_address(text: str, least_port: int) -> bool:
    host, _, port = text.rpartition(":")
    return (
        _HOST.fullmatch(host) is not None
        and re.fullmatch(r"[0-9]{1,5}", port) is not None
        and least_port <= int(port) <= 65535
    )


LISTEN_ADDRESS = Form("HOST:PORT", "HOST:PORT, port 0 for any free one", lambda text: _is_address(text, 0))
ADDRESS = Form("HOST:PORT", "HOST:PORT, port from 1 to 65535", lambda text: _is_address(text, 1))
ADDRESSES = Form(
    "HOST:PORT,…",
    "HOST:PORT, port from 1 to 65535, or several different ones with commas between them",
    lambda text: (
        all(_is_address(part, 1) for part in text.split(","))
        and len(set(text.split(","))) == len(text.split(","))
    ),
)


def _is_redis_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        options = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))
        port = url.port
    except ValueError:
        return False
    known = _URL_OPTIONS | (_TLS_OPTIONS if url.scheme == "rediss" else set())
    if not options.keys() <= known or not options.get("db", "0").isdecimal() or url.fragment:
        return False
    if options.get("ssl_cert_reqs", "none") not in ("none", "optional", "required"):
        return False
    if _MASK in (url.password, options.get("password")):
        return False
    if url.scheme == "unix":
        return len(url.path) > 1
    host = url.hostname or ""
    is_host = any(_HOST.fullmatch(text) for text in (host, f"[{host}]"))
    on_network = url.scheme in ("redis", "rediss") and is_host and port != 0
    return on_network and re.fullmatch(r"/?|/[0-9]+", url.path) is not None


REDIS_URL = Form(
    "URL", "redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix:///PATH, a password not masked", _is_redis_url
)


def without_password(url: str) -> str:
    """A Redis URL with its password, wherever it is, masked."""
    parts = urlsplit(url)
    if parts.password is not None:
        login, _, host = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=f"{login.partition(':')[0]}:{_MASK}@{host}")
    options = parse_qsl(parts.query, keep_blank_values=True)
    if any(name == "password" for name, _ in options):
        options = [(name, _MASK if name == "password" else value) for name, value in options]
        parts = parts._replace(query=urlencode(options, safe="*/:"))
    return _joined(parts)


def _joined(parts: SplitResult) -> str:
    # urlunsplit would write unix:///path with one slash in some releases of Python
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{query}"


@dataclass(frozen=True, slots=True)
class CommonSettings:
    """What every program has."""

    log_level: str = setting(
        "events below it are not logged", "info", choices=("debug", "info", "warning", "error"), common=True
    )
    log_format: str = setting(
        "of a line of the log: key=value, or a JSON object", "text", choices=("text", "json"), common=True
    )

    def __post_init__(self) -> None:
        """Raises SettingError naming the setting and what it may be."""
        check_settings(self)


@dataclass(frozen=True, slots=True)
class StoreSettings(CommonSettings):
    """What every program has that uses the tree store."""

    redis_url: str = setting(
        "Redis or Valkey of the tree store",
        "redis://127.0.0.1:6379/0",
        form=REDIS_URL,
        secret=without_password,
        common=True,
    )
    redis_password_file: Path | None = setting(
        "file that holds the password of the tree store, and nothing else but a newline at its end",
        None,
        common=True,
    )

    def redis_password(self) -> str | None:
        """The password in `redis_password_file`; None when there is no such setting.

        Raises SettingError when the file cannot be read or is empty, or when the URL has a password, too.
        """
        path = self.redis_password_file
        if path is None:
            return None
        if without_password(self.redis_url) != self.redis_url:
            problem = "must not be set when redis_url has a password of its own"
            raise SettingError("redis_password_file", problem)
        try:
            password = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise SettingError("redis_password_file", f"{path} cannot be read: {reason}") from None
        password = password.removesuffix("\n").removesuffix("\r")
        if not password:
            raise SettingError("redis_password_file", f"{path} is empty")
        return password
