"""A page that shows the OpenAPI document, whole in itself: a gateway may stand where no other host is reachable."""

from __future__ import annotations

from collections.abc import Callable

import anyio.to_thread
from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
code, .method { font-family: ui-monospace, monospace }
details { border: 1px solid #ccc; border-radius: 6px; margin: .5rem 0; padding: .4rem .8rem }
summary { cursor: pointer } .method { font-weight: 600; display: inline-block; min-width: 4.5rem }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 }
td { border-top: 1px solid #eee; padding: .25rem .5rem; vertical-align: top } td:first-child { white-space: nowrap }
"""

# Everything is written as text, never as markup. A schema is shown one level deep; names of schemas lead to their own.
_SCRIPT = """
const make = (tag, text, ...children) => {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  node.append(...children);
  return node;
};
const named = (schema) => schema.$ref ? schema.$ref.split("/").pop() : null;
const kind = (schema) => {
  if (!schema) return "";
  if (schema.anyOf) return schema.anyOf.map(kind).filter((one) => one !== "null").join(" or ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if (schema.type === "array") return "list of " + (kind(schema.items || {}) || "anything");
  return named(schema) || schema.type || "";
};
const fields = (schema) => {
  const table = make("table");
  for (const [name, field] of Object.entries(schema.properties || {})) {
    const needed = (schema.required || []).includes(name) ? ", required" : "";
    table.append(make("tr", "", make("td", "", make("code", name)), make("td", kind(field) + needed),
                      make("td", field.description || "")));
  }
  return table;
};
const operation = (method, path, one) => {
  const title = make("summary", "", make("span", method.toUpperCase()), make("code", path), " " + (one.summary || ""));
  title.firstChild.className = "method";
  const box = make("details", "", title, make("p", one.description || ""));
  box.append(fields({properties: Object.fromEntries((one.parameters || []).map((given) =>
    [given.name + " in " + given.in, {...given.schema, description: given.description}]))}));
  const body = one.requestBody?.content?.["application/json"]?.schema;
  if (body) box.append(make("p", "Body: " + kind(body)));
  box.append(fields({properties: Object.fromEntries(Object.entries(one.responses || {}).map(([status, answer]) =>
    [status, {description: answer.description}]))}));
  return box;
};
fetch("openapi.json").then((answer) => answer.json()).then((api) => {
  const page = document.querySelector("main");
  page.replaceChildren(make("h1", api.info.title + " " + api.info.version));
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, one] of Object.entries(methods)) page.append(operation(method, path, one));
  page.append(make("h2", "Bodies"));
  for (const [name, schema] of Object.entries(api.components?.schemas || {}))
    page.append(make("details", "", make("summary", "", make("code", name)), make("p", schema.description || ""),
                     schema.properties ? fields(schema) : make("p", kind(schema))));
}).catch((problem) => { document.querySelector("main").textContent = "openapi.json cannot be read: " + problem; });
"""

_PAGE = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>API</title>
<style>{_STYLE}</style></head>
<body><main>Reading <a href="openapi.json">openapi.json</a> (needs JavaScript).</main>
<script>{_SCRIPT}</script></body></html>
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


def api_page_router(document: Callable[[], bytes]) -> APIRouter:
    """The routes ``/openapi.json`` and ``/docs``.

    Args:
        document: makes the OpenAPI document; it may take its time.
    """
    router = APIRouter(include_in_schema=False)

    @router.get("/openapi.json")
    async def openapi() -> Response:
        """Describe the API; making the document for the first time would hold up other requests' tokens."""
        return Response(await anyio.to_thread.run_sync(document), media_type="application/json")

    @router.get("/docs")
    async def docs() -> HTMLResponse:
        """Show the API; the browser asks this gateway alone."""
        return HTMLResponse(_PAGE, headers={"Content-Security-Policy": _POLICY})

    return router
