"""A receiver as a process of its own: honours keys, keeps a record per key, answers at once."""

import sys

from aiohttp import web


def main() -> None:
    """Serve on the port that the first argument names."""
    known: dict[str, str] = {}

    async def act(request: web.Request) -> web.Response:
        await request.read()
        key = request.headers["Idempotency-Key"]
        made = known.setdefault(key, f"r-{len(known):09d}")
        return web.json_response({"key": key, "id": made}, status=201)

    async def look(request: web.Request) -> web.Response:
        key = request.match_info["key"]
        return web.json_response({"key": key, "id": known.get(key, "r-0")})

    app = web.Application()
    app.add_routes([web.post("/act", act), web.get("/act/{key}", look)])
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)


if __name__ == "__main__":
    main()
