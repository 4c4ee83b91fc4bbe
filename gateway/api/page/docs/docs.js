// The API page: what openapi.json describes, and a form to try each operation. All that servers say is written as text.
import { $, button, make, say, store } from "./parts.js";
import { Problem, problemOf } from "./request.js";

const MOST_SHOWN = 200_000; // characters of a response
const PLACE = "MODEL"; // of the model's name in examples
const OF_MODEL = /^model(_id)?$/;
const keyed = (headers = {}) => {
  const key = $("key").value;
  if (/[^\x21-\x7e]/.test(key)) throw new Problem("The key has characters that no header can carry.");
  return key ? { ...headers, Authorization: `Bearer ${key}` } : headers;
};
const at = (path) => new URL(path.replace(/^\//, ""), document.baseURI).href;

// ---- schemas, one level deep; names of schemas lead to their own

const join = (nodes, word) => nodes.flatMap((one, index) => (index ? [word, ...one] : one));
const kind = (schema) => {
  if (!schema) return [];
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return [make("a", { href: `#schema-${name}`, textContent: name })];
  }
  const some = schema.anyOf ?? schema.oneOf;
  if (some) return join(some.filter((one) => one.type !== "null").map(kind), " or ");
  if ("const" in schema) return [JSON.stringify(schema.const)];
  if (schema.enum) return [schema.enum.map((one) => JSON.stringify(one)).join(" or ")];
  if (schema.type === "array") return ["list of ", ...(schema.items ? kind(schema.items) : ["anything"])];
  return [[schema.type ?? "anything"].flat().join(" or ")];
};
const row = (name, middle, text) => make("tr", {}, make("td", {}, make("code", { textContent: name })), ...(middle ? [make("td", {}, ...middle)] : []), make("td", { textContent: text }));
const fields = (schema) => make("table", {}, ...Object.entries(schema.properties ?? {}).map(([name, field]) =>
  row(name, [...kind(field), schema.required?.includes(name) ? ", required" : ""], field.description ?? "")));

// ---- trying an operation

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const curlOf = (method, url, headers, body) => [
  `curl -sSN -X ${method} ${quoted(url)}`,
  ...($("key").value ? ['  -H "Authorization: Bearer $GATEWAY_API_KEY"'] : []),
  ...Object.entries(headers).map(([name, value]) => `  -H ${quoted(`${name}: ${value}`)}`),
  ...(body === undefined ? [] : [`  --data-raw ${quoted(body)}`]),
].join(" \\\n");

// What the form asks for: the URL with its parameters, headers, and the body as it is written.
const requestOf = (path, inputs, body) => {
  let url = path;
  const query = new URLSearchParams();
  const headers = body ? { "Content-Type": "application/json" } : {};
  for (const [given, input] of inputs) {
    const value = input.value.trim();
    if (given.in === "path") {
      if (!value) throw new Problem(`${given.name} is part of the path, and empty.`);
      url = url.replace(`{${given.name}}`, value.split("/").map(encodeURIComponent).join("/"));
    } else if (value) {
      if (given.in === "query") query.set(given.name, value);
      else headers[given.name] = value;
    }
  }
  return { url: at(url) + (query.size ? `?${query}` : ""), headers, body: body?.value };
};

const shownAsJson = (text) => { try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; } };

// Write the response as it comes; what is no stream is laid out at its end.
const read = async (answer, out) => {
  let text = "", length = 0;
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true };
    if (done) break;
    length += value.length;
    const more = value.slice(0, MOST_SHOWN - text.length);
    text += more;
    out.append(more);
  }
  if (length > text.length) return `, of ${length} characters the first ${text.length}`;
  if (answer.headers.get("content-type")?.includes("json")) out.textContent = shownAsJson(text);
  return "";
};

const bodies = [], names = []; // fields whose requests name the model, and those that do nothing else

const trial = (method, path, operation) => {
  const inputs = (operation.parameters ?? []).map((given) => [given, make("input", { id: `${operation.operationId}-${given.name}`, spellcheck: false,
    autocomplete: "off", value: OF_MODEL.test(given.name) ? named : "" })]);
  names.push(...inputs.filter(([given]) => OF_MODEL.test(given.name)).map(([, input]) => input));
  const described = operation.requestBody?.content?.["application/json"];
  const examples = Object.values(described?.examples ?? {});
  const written = (value) => JSON.stringify(value ?? {}, null, 2).replaceAll(JSON.stringify(PLACE), () => JSON.stringify(named));
  const body = described && make("textarea", { className: "code", id: `${operation.operationId}-body`, rows: 10, spellcheck: false, value: written(examples[0]?.value) });
  if (body) bodies.push(body);
  const choice = make("select", { id: `${operation.operationId}-example`, onchange: () => { body.value = written(examples[choice.value].value); } },
    ...examples.map(({ summary }, index) => make("option", { value: index, textContent: summary })));
  const state = make("p", { className: "figures" }, "");
  state.setAttribute("role", "status");
  const out = make("pre", { tabIndex: 0, ariaLabel: "Response", role: "region" });
  const curl = make("pre", { tabIndex: 0, ariaLabel: "As curl", role: "region" });
  let running = null;
  const send = async () => {
    running?.abort();
    const mine = running = new AbortController();
    const begun = performance.now();
    stop.hidden = false;
    out.textContent = "";
    state.textContent = "Asked.";
    try {
      const { url, headers, body: sent } = requestOf(path, inputs, body);
      const answer = await fetch(url, { method, headers: keyed(headers), body: sent, signal: mine.signal });
      const about = `${answer.status} ${answer.statusText}`.trim();
      state.textContent = `${about}, in progress.`;
      const cut = await read(answer, out);
      state.textContent = `${about} after ${((performance.now() - begun) / 1000).toFixed(2)} s${cut} · x-request-id ${answer.headers.get("x-request-id") ?? "none"}`;
    } catch (error) {
      if (running === mine) state.textContent = mine.signal.aborted ? "Stopped." : error instanceof Problem ? error.message : "The response broke off, or the gateway cannot be reached.";
    } finally {
      if (running === mine) stop.hidden = true;
    }
  };
  const stop = make("button", { type: "button", textContent: "Stop", hidden: true, onclick: () => running?.abort() });
  const asCurl = () => {
    try {
      const { url, headers, body: sent } = requestOf(path, inputs, body);
      curl.textContent = curlOf(method, url, headers, sent);
      navigator.clipboard?.writeText(curl.textContent).then(() => { state.textContent = "Copied."; }, () => {});
    } catch (problem) { curl.textContent = problem.message; }
  };
  const labelled = (text, node) => [make("label", { htmlFor: node.id, textContent: text }), node];
  return make("form", { className: "try", onsubmit: (event) => { event.preventDefault(); send(); } },
    make("h3", { textContent: "Try it" }),
    ...inputs.flatMap(([given, input]) => labelled(`${given.name}${given.required ? "" : ", may be left out"}: ${given.description ?? ""}`, input)),
    ...(examples.length > 1 ? labelled("Example", choice) : []),
    ...(body ? labelled("Body", body) : []),
    make("p", { className: "buttons" }, make("button", { className: "main", textContent: "Send" }), stop, button("As curl", asCurl)),
    curl, state, out);
};

// ---- the page

const operation = (method, path, one) => {
  const title = make("summary", {}, make("span", { className: "method", textContent: method.toUpperCase() }), make("code", { textContent: path }), ` ${one.summary ?? ""}`);
  const box = make("details", { id: one.operationId }, title);
  const fill = () => {
    const body = one.requestBody?.content?.["application/json"]?.schema;
    if (one.description) box.append(make("p", { textContent: one.description }));
    if (body) box.append(make("p", {}, "Body: ", ...kind(body)));
    box.append(trial(method.toUpperCase(), path, one), make("h3", { textContent: "Responses" }),
      make("table", {}, ...Object.entries(one.responses ?? {}).map(([status, answer]) => row(status, null, answer.description))));
  };
  box.addEventListener("toggle", fill, { once: true });
  return box;
};

const group = (name, found) => {
  const title = make("h2", { id: `group-${name}`, textContent: name[0].toUpperCase() + name.slice(1) });
  const section = make("section", {}, title, ...found);
  section.setAttribute("aria-labelledby", title.id);
  return section;
};

const show = (api) => {
  $("title").textContent = `${api.info.title} ${api.info.version}`;
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, one] of Object.entries(methods)) {
      const tag = one.tags?.[0] ?? "other";
      if (method !== "head") groups.set(tag, [...(groups.get(tag) ?? []), operation(method, path, one)]);
    }
  const schemas = Object.entries(api.components?.schemas ?? {}).map(([name, schema]) => make("details", { id: `schema-${name}` },
    make("summary", {}, make("code", { textContent: name })), make("p", { textContent: schema.description ?? "" }),
    schema.properties ? fields(schema) : make("p", {}, ...kind(schema))));
  groups.set("bodies", schemas);
  $("groups").replaceChildren(...[...groups.keys()].map((name) => make("a", { href: `#group-${name}`, textContent: name })));
  $("api").replaceChildren(...[...groups].map(([name, found]) => group(name, found)));
  openLinked();
};

// A link to a folded part unfolds it.
const openLinked = () => {
  const linked = $(location.hash.slice(1)); // ids have letters, digits, "-" and "_"
  if (linked?.tagName === "DETAILS") linked.open = true;
  linked?.scrollIntoView();
};

const loadModels = async () => {
  try {
    const answer = await fetch(at("v1/models"), { headers: keyed() });
    if (!answer.ok) throw await problemOf(answer);
    const { data } = await answer.json();
    $("model").replaceChildren(...data.map(({ id }) => make("option", { textContent: id })));
    $("model").disabled = !data.length;
    $("model").onchange();
    say(data.length ? "Each operation can be tried below, with this model." : "There is no model that this key may use.");
  } catch (problem) {
    $("model").disabled = true;
    if (problem.status === 404) $("keys").hidden = true;
    say(problem.status === 404 ? "This port serves no models: what asks one cannot be tried here."
      : problem.status === 401 && !$("key").value ? "This gateway asks for a key: without one nothing can be tried."
      : problem instanceof Problem ? problem.message : "The gateway cannot be reached.");
  }
};

let named = PLACE; // the model that the forms name
$("model").onchange = () => {
  const chosen = $("model").value || PLACE;
  const [before, after] = [named, chosen].map((name) => `"model": ${JSON.stringify(name)}`);
  for (const body of bodies) body.value = body.value.replace(before, () => after);
  for (const input of names) if (input.value === named) input.value = chosen;
  named = chosen;
};
addEventListener("hashchange", openLinked);
fetch("./", { method: "HEAD" }).then(({ ok }) => { $("chat").hidden = !ok; }, () => {}); // the chat page may be off
const load = async () => {
  try {
    const answer = await fetch("openapi.json", { headers: keyed() });
    if (!answer.ok) throw await problemOf(answer);
    const api = await answer.json();
    $("keys").hidden = !api.components?.securitySchemes;
    await loadModels();
    show(api);
    return true;
  } catch (problem) {
    if (problem.status === 401) $("keys").hidden = false;
    say(problem.status === 401 && !$("key").value ? "This gateway shows its API to holders of a key." : `openapi.json cannot be read: ${problem.message}`);
    return false;
  }
};
$("key").value = store.get();
let shown = load();
$("key").onchange = async () => {
  store.set($("key").value);
  shown = (await shown) ? loadModels().then(() => true) : load();
};
