"""Connection strings of libpq: whether one can be one, said without a word of it, since a password may stand in it."""


def dsn_problem(dsn: str) -> str | None:
    """Say what is wrong with a connection string, and how it is written; None if it can be used."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    if dsn.startswith(("postgresql+", "postgres+")):
        return "a libpq connection string is needed: write postgresql:// without the driver's name"
    try:
        parts = conninfo_to_dict(dsn)
    except ProgrammingError:
        return 'not a connection string: write "postgresql://user@host/database" or "host=... dbname=..."'
    host, port, name = (str(parts.get(part) or "") for part in ("host", "port", "dbname"))
    # A password with a bare "@" or "/" ends too early: its rest is taken for a name, and messages quote those.
    strays = any("@" in one[1:] for one in host.split(",")) or not all(one.isdigit() for one in port.split(",") if one)
    if strays or ("://" in dsn and "@" in name and "user" not in parts):
        return 'not a connection string: write "@" and "/" of a password as %40 and %2F'
    return None
