"""Settings: one PostgreSQL database, in which the schema `outbox` lies beside the project's own tables."""

import os
from urllib.parse import parse_qs, unquote, urlsplit

_url = urlsplit(os.environ["DATABASE_URL"])
_query = parse_qs(_url.query)

SECRET_KEY = "only for this example"  # noqa: S105
USE_TZ = True
INSTALLED_APPS = ["shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(_url.path.lstrip("/")),
        "USER": _url.username or "",
        "PASSWORD": _url.password or "",
        "HOST": _query["host"][0] if "host" in _query else _url.hostname or "",
        "PORT": _query["port"][0] if "port" in _query else str(_url.port or ""),
    }
}
