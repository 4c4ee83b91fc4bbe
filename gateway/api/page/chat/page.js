// The chat page. Texts of models, servers and users are written as text, never as markup.
import { button, make, store } from "./parts.js";
import { EXAMPLES, Problem, eventsOf, figures, percent, problemOf, programs, shown, valueOf } from "./request.js";

const $ = (id) => document.getElementById(id);
const say = (text) => { $("status").textContent = text; };
const warn = (text) => { $("alert").textContent = text; };
const BASE = new URL("v1", document.baseURI).href;
const RETRY_MS = 3000;

let key = store.get();
let model = null; // as the gateway describes it
let special = new Set();
let history = [];
let running = null; // what stops the answer
let retry = 0;
let chat = 0; // which conversation

// ---- the gateway

const ask = async (path, body, signal) => {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    throw signal?.aborted ? error : new Problem("The gateway is unreachable.");
  }
  if (answer.ok) return answer;
  const problem = await problemOf(answer);
  if (problem.status === 401) askForKey();
  throw problem;
};

const askForKey = () => {
  $("keys").hidden = false;
  warn(key ? "The gateway does not accept this key." : "");
  say(key ? "" : "This gateway requires an API key.");
  $("key").focus();
};

const again = (task) => { clearTimeout(retry); retry = setTimeout(task, RETRY_MS); };

const loadModels = async () => {
  clearTimeout(retry);
  say("Loading the models.");
  try {
    const data = (await (await ask("v1/models")).json()).data.filter(({ gateway }) => gateway.task === "generate");
    const before = $("model").value;
    if (!$("keys").hidden) $("draft").focus();
    $("keys").hidden = true;
    $("forget").hidden = !key;
    $("model").replaceChildren(...data.map(({ id }) => make("option", { textContent: id, selected: id === before })));
    $("model").disabled = data.length === 0;
    warn("");
    if (data.length) await describeModel();
    else say("This key has no access to any model that generates text.");
  } catch (problem) {
    if (problem.status === 401) return;
    say("");
    warn(problem.message);
    again(loadModels);
  }
};

const describeModel = async () => {
  clearTimeout(retry);
  const id = $("model").value;
  try {
    const found = await (await ask(`v1/models/${id.split("/").map(encodeURIComponent).join("/")}`)).json();
    if (id !== $("model").value) return;
    const same = JSON.stringify(model) === JSON.stringify(found);
    model = found;
    if (!same) showSettings();
    if (model.gateway.ready) {
      if ($("alert").dataset.unready) warn("");
      delete $("alert").dataset.unready;
      if (!running) say(`${id} is ready.`);
      // Without them, tokens are only not marked.
      const known = await ask(`tokenizer_info?model=${encodeURIComponent(id)}`).then((one) => one.json()).catch(() => ({}));
      special = new Set(known.control_tokens);
    } else {
      say("");
      $("alert").dataset.unready = "yes";
      const text = `${id} cannot be served now: ${model.gateway.reason}`;
      if ($("alert").textContent !== text) warn(text);
      again(describeModel);
    }
  } catch (problem) {
    if (problem.status === 401) return;
    warn(problem.message);
    again(loadModels);
  }
};

// ---- the settings, by what the model can serve

const COMMON = {
  temperature: { min: 0, max: 2, step: 0.1 }, max_tokens: { min: 1, step: 1 }, top_p: { min: 0, max: 1, step: 0.05 }, top_k: { min: -1, step: 1 },
  min_p: { min: 0, max: 1, step: 0.05 }, seed: { step: 1 }, stop: null, n: { min: 1, step: 1 }, presence_penalty: { min: -2, max: 2, step: 0.1 },
  frequency_penalty: { min: -2, max: 2, step: 0.1 }, repetition_penalty: { min: 0, step: 0.1 },
};
const OWN = new Set(["model", "messages", "stream", "stream_options", "logprobs", "top_logprobs", "return_token_ids", "skip_special_tokens", "tools",
  "tool_choice", "response_format", "prompt", "suffix"]); // they have places of their own, or none in a chat
const SWITCHES = new Set(["ignore_eos", "include_stop_str_in_output", "no_stop_trim", "return_tokens_as_token_ids", "echo",
  "add_generation_prompt", "continue_final_message", "parallel_tool_calls", "store", "use_beam_search"]);
const typed = new Map(); // what was entered, whichever model it was for

const can = (name) => model?.capabilities?.[name];
const rejects = (name) => can(name)?.how === "impossible";

const field = (name, about) => {
  const number = COMMON[name];
  const given = { id: `p-${name}`, value: typed.get(name) ?? "", "aria-describedby": `p-${name}-why`, disabled: about.how === "impossible" };
  const input = SWITCHES.has(name)
    ? make("select", given, ...["", "true", "false"].map((value) => make("option", { value, textContent: value || "–" })))
    : make("input", number ? { type: "number", ...number, step: "any", ...given } : { type: "text", spellcheck: false, autocomplete: "off", ...given });
  if (number?.step === 1) input.step = 1;
  input.value = given.value;
  input.dataset.name = name;
  input.oninput = () => { typed.set(name, input.value); input.removeAttribute("aria-invalid"); };
  const limit = about.limit === undefined ? "" : ` At most ${about.limit}.`;
  return make("div", { className: given.disabled ? "row off" : "row" }, make("label", { htmlFor: given.id, textContent: name }), input,
    make("small", { id: `p-${name}-why`, textContent: about.note + limit }));
};

const showSettings = () => {
  const known = Object.entries(model.capabilities ?? {}).filter(([name, about]) => !OWN.has(name) && !/\./.test(name) && about.class !== "output");
  const common = Object.keys(COMMON).filter((name) => can(name));
  const others = known.filter(([name, about]) => !(name in COMMON) && about.how !== "impossible").sort();
  const rejected = known.filter(([name, about]) => !(name in COMMON) && about.how === "impossible").sort();
  $("common").replaceChildren(...common.map((name) => field(name, can(name))));
  $("others").replaceChildren(...others.map(([name, about]) => field(name, about)));
  $("rejected").replaceChildren(...rejected.flatMap(([name, about]) => [make("dt", { textContent: name }), make("dd", { textContent: about.note })]));
  $("others-count").textContent = `(${others.length})`;
  $("rejected-count").textContent = `(${rejected.length})`;
  for (const [id, name] of Object.entries({ logprobs: "logprobs", top_logprobs: "top_logprobs", return_token_ids: "return_token_ids",
    special: "skip_special_tokens", stream: "stream", tools: "tools", tool_choice: "tool_choice", response_format: "response_format" })) {
    // Some models call tools only where a request demands it.
    const off = rejects(name) && !(name === "tools" && can("tool_choice") && !rejects("tool_choice"));
    $(id).disabled = off;
    $(id).closest(".row")?.classList.toggle("off", off);
    $(`${id}-why`).textContent = rejects(name) || !$(id).classList.contains("code") ? can(name)?.note ?? "" : "";
  }
  $("tools-example").disabled = $("tools").disabled;
  $("response_format-example").disabled = $("response_format").disabled;
  $("top_logprobs").max = can("top_logprobs")?.limit ?? model.gateway.max_top_logprobs ?? 20;
  if ($("top_logprobs").valueAsNumber > Number($("top_logprobs").max)) $("top_logprobs").value = $("top_logprobs").max;
};

// A field at fault is shown with the sentence.
const blame = (name) => {
  const at = name?.split(/[.[]/)[0];
  const input = document.querySelector(`#settings [data-name="${CSS.escape(at ?? "")}"]`) ?? (OWN.has(at) ? $(at) : null);
  if (!input || input === $("model")) return;
  input.setAttribute("aria-invalid", "true");
  const box = input.closest("details");
  if (box) box.open = true;
};

const json = (id) => {
  const text = $(id).value;
  if ($(id).disabled || !text.trim()) return undefined;
  try { return JSON.parse(text); } catch (error) {
    throw new Problem(`${id} is not valid JSON: ${error.message}`, 0, id);
  }
};

const requestOf = (messages) => {
  const body = { model: $("model").value, messages };
  if ($("system").value.trim()) body.messages = [{ role: "system", content: $("system").value }, ...messages];
  for (const input of $("settings").querySelectorAll("[data-name]:enabled")) {
    if (input.validity?.badInput) throw new Problem(`${input.dataset.name} is not a number.`, 0, input.dataset.name);
    const value = valueOf(input.value);
    if (value !== undefined) body[input.dataset.name] = value;
  }
  const on = (id) => $(id).checked && !$(id).disabled;
  if (on("logprobs")) {
    body.logprobs = true;
    const most = $("top_logprobs").valueAsNumber;
    if (most > 0 && !$("top_logprobs").disabled) body.top_logprobs = most;
    if (on("return_token_ids")) body.return_token_ids = true;
  }
  if (on("special")) body.skip_special_tokens = false;
  const tools = json("tools");
  if (tools) body.tools = tools;
  if (tools && $("tool_choice").value && !$("tool_choice").disabled) body.tool_choice = $("tool_choice").value;
  const schema = json("response_format");
  if (schema) body.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
  body.stream = on("stream");
  if (body.stream && !rejects("stream_options.include_usage")) body.stream_options = { include_usage: true };
  return body;
};

// ---- tokens

const tip = $("tip");
let pinned = null;
const showTip = (node) => {
  const { entry, id } = node.token;
  const rows = [...(entry.top_logprobs ?? [])];
  if (!rows.some((one) => one.token === entry.token)) rows.push(entry);
  tip.replaceChildren(
    make("p", {}, make("code", { textContent: shown(entry) }), ` ${percent(entry.logprob)}, log-prob ${entry.logprob.toFixed(3)}${id === undefined ? "" : `, id ${id}`}`
      + (special.has(entry.token) ? ", special" : "")),
    make("table", {}, ...rows.map((one) => make("tr", {}, make("td", {}, make("code", { textContent: shown(one) })),
      make("td", {}, make("meter", { value: Math.exp(one.logprob), max: 1, ariaHidden: "true" })),
      make("td", { textContent: percent(one.logprob) + (one.token === entry.token ? " ✓" : "") })))));
  tip.hidden = false;
  const at = node.getClientRects()[0] ?? node.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - tip.offsetWidth - 8));
  const below = at.bottom + tip.offsetHeight + 8 < innerHeight || at.top < tip.offsetHeight + 8;
  tip.style.left = `${left + scrollX}px`;
  tip.style.top = `${scrollY + (below ? at.bottom + 4 : at.top - tip.offsetHeight - 4)}px`;
  node.setAttribute("aria-describedby", "tip");
};
const hideTip = () => {
  tip.hidden = true;
  pinned = null;
  document.querySelector("[aria-describedby=tip]")?.removeAttribute("aria-describedby");
};
const leaveTip = (event) => { // the pointer may go onto it
  if (!pinned && !tip.contains(event.relatedTarget) && document.activeElement?.token === undefined) hideTip();
};
tip.onmouseleave = leaveTip;

// One stop of the Tab key; arrows go from token to token.
const tokenList = () => {
  const list = make("div", { className: "tokens", role: "group", "aria-label": "Tokens with their probabilities; arrow keys go through them" });
  const go = (to) => {
    if (!to?.token) return;
    list.querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
    to.setAttribute("tabindex", "0");
    to.focus();
  };
  list.onkeydown = (event) => {
    const at = event.target;
    const to = { ArrowRight: at.nextElementSibling, ArrowLeft: at.previousElementSibling, Home: list.firstElementChild, End: list.lastElementChild }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    go(to);
  };
  list.onmouseover = ({ target }) => { if (target.token && !pinned) showTip(target); };
  list.addEventListener("focusin", ({ target }) => { if (target.token) { pinned = null; showTip(target); } });
  list.addEventListener("focusout", hideTip);
  list.onmouseout = leaveTip;
  list.onclick = ({ target }) => { if (target.token) { go(target); pinned = target; } };
  return list;
};

const tokenNode = (entry, first) => {
  const text = shown(entry);
  const node = make("span", { className: special.has(entry.token) ? "token special" : "token", textContent: text, role: "button", tabIndex: first ? 0 : -1,
    "aria-label": `${text.trim() || "space"}, ${percent(entry.logprob)}` });
  node.style.setProperty("--p", Math.exp(entry.logprob).toFixed(3));
  node.token = { entry };
  return node;
};

// ---- the conversation

class Choice { // one of the answers to a request, as it comes
  constructor(box, index) {
    this.text = "";
    this.reasoning = "";
    this.calls = [];
    this.ids = [];
    this.finish = null;
    this.box = make("div");
    if (index) this.box.append(make("h3", { textContent: `Choice ${index + 1}` }));
    this.words = make("div", { className: "text" });
    this.box.append(this.words);
    box.append(this.box);
  }

  take(choice) {
    const delta = choice.delta ?? choice.message ?? {};
    const thought = delta.reasoning_content ?? delta.reasoning;
    if (thought) this.think(thought);
    if (delta.content) {
      this.text += delta.content;
      this.words.append(delta.content);
    }
    if (delta.refusal) this.words.append(delta.refusal);
    for (const [at, part] of (delta.tool_calls ?? []).entries()) this.call(part.index ?? at, part);
    if (delta.function_call) this.call(0, { function: delta.function_call });
    const entries = choice.logprobs?.content ?? [];
    this.ids.push(...choice.token_ids ?? []);
    if (entries.length) this.seen(entries);
    this.finish = choice.finish_reason ?? this.finish;
    return Boolean(thought || delta.content || delta.tool_calls || delta.function_call || entries.length);
  }

  think(text) {
    if (!this.thoughts) {
      this.thoughts = make("div", { className: "text" });
      this.words.before(make("details", {}, make("summary", { textContent: "Reasoning" }), this.thoughts));
    }
    this.reasoning += text;
    this.thoughts.append(text);
  }

  seen(entries) {
    if (!this.tokens) {
      this.tokens = tokenList();
      this.words.classList.add("unseen"); // for screen readers; the tokens show the same
      this.words.after(this.tokens);
    }
    this.tokens.append(...entries.map((entry, at) => tokenNode(entry, !this.tokens.hasChildNodes() && at === 0)));
  }

  end() { // ids may come before their entries: whose they are is certain once there are as many
    const nodes = [...this.tokens?.children ?? []];
    if (nodes.length === this.ids.length) nodes.forEach((node, at) => { node.token.id = this.ids[at]; });
  }

  call(at, part) {
    if (!this.calls[at]) {
      const shown = make("pre");
      this.box.append(make("p", { textContent: "The model calls a tool:" }), shown);
      this.calls[at] = { id: part.id, name: "", arguments: "", shown };
    }
    const call = this.calls[at];
    call.id ??= part.id;
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
    call.shown.textContent = `${call.name}(${call.arguments})`;
  }

  message(whole) { // calls that were cut off are none
    const made = { role: "assistant", content: this.text };
    if (this.reasoning) made.reasoning_content = this.reasoning;
    if (whole && this.calls.length)
      made.tool_calls = this.calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
    return made;
  }
}

const turn = (who, kind) => {
  const box = make("article", { className: `turn ${kind}` }, make("h2", { textContent: who }));
  $("turns").append(box);
  return box;
};

// Keep the end in view while it grows, unless the user looks at something else. Checked once per frame, since a check makes
// the browser lay out the whole answer.
let due = false;
const following = () => {
  const box = $("turns");
  const focused = document.activeElement; // the body after a click on Send, which cannot be clicked any more
  return due || (box.scrollHeight - box.scrollTop - box.clientHeight < 80 && ($("composer").contains(focused) || focused === document.body));
};
const follow = () => {
  $("turns").scrollTop = $("turns").scrollHeight;
  $("status").scrollIntoView({ block: "nearest" }); // where the page scrolls as a whole
};
let looked = false;
const keepFollowing = () => {
  if (looked) return;
  looked = true;
  due = following();
  const top = $("turns").scrollTop;
  requestAnimationFrame(() => {
    if (due && $("turns").scrollTop >= top) follow(); // unless the user has scrolled up meanwhile
    looked = due = false;
  });
};

const requestButtons = (body, raw) => make("p", { className: "buttons small", role: "group", "aria-label": "This request" },
  ...Object.keys(programs).map((name) => button(`Copy as ${name}`, () => showProgram(name, body))),
  button("Exact prompt", () => showPrompt(body)),
  button("Raw answer", () => show("Raw answer", raw.join("\n"))));

const BROKEN = "The response ended early: the connection was lost.";

// Send a request, and hand over each part of the reply, which is kept in raw.
const receive = async (body, signal, raw, take) => {
  const reply = await ask("v1/chat/completions", body, signal);
  if (!body.stream) {
    raw.push(await reply.text());
    return take(JSON.parse(raw[0]));
  }
  let whole = false;
  for await (const data of eventsOf(reply.body)) {
    raw.push(data);
    if (data === "[DONE]") whole = true; // and the stream ends
    else take(JSON.parse(data));
  }
  if (!whole) throw new Problem(BROKEN);
};

// The parts of a reply as they come, in an article of their own, with their times since the request was sent.
class Reply {
  constructor(body) {
    this.body = body;
    this.box = turn(body.model, "model");
    this.box.setAttribute("aria-busy", "true");
    this.choices = [];
    this.raw = [];
    this.times = {};
    this.sent = performance.now();
  }

  now() { return (performance.now() - this.sent) / 1000; }

  take(part) {
    if (part.error) throw new Problem(`The gateway ended the response with an error: ${part.error.message}`);
    keepFollowing();
    this.usage = part.usage ?? this.usage;
    for (const choice of part.choices ?? []) {
      this.choices[choice.index] ??= new Choice(this.box, choice.index);
      if (!this.choices[choice.index].take(choice) || !this.body.stream) continue; // the first token of a non-streaming response has no time
      if (this.times.first === undefined) say("Receiving the answer.");
      this.times.first ??= this.now();
      this.times.last = this.now();
    }
  }

  // ending: the words for an end that the server did not give a reason for.
  end(ending) {
    this.times.end = this.now();
    this.box.removeAttribute("aria-busy");
    this.choices.forEach((choice) => choice.end());
    const first = this.choices[0];
    if (!first) return this.box.remove();
    return this.box.append(make("p", { className: "figures", textContent: figures(this.usage, this.times, first.finish ?? ending) }),
      requestButtons(this.body, this.raw));
  }
}

const busy = (stopper) => {
  running = stopper;
  $("send").disabled = Boolean(stopper);
  const focused = document.activeElement === $("stop");
  $("stop").hidden = !stopper;
  if (focused) $("draft").focus();
};

// Send the conversation, show what comes, and keep a whole answer. Returns whether one came.
const answer = async (messages) => {
  let body;
  for (const field of document.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  try { body = requestOf(messages); } catch (problem) { warn(problem.message); blame(problem.param); return false; }
  warn("");
  say("Waiting for the first token.");
  $("said").textContent = "";
  const stopper = new AbortController();
  const mine = chat;
  const reply = new Reply(body);
  let problem = null;
  busy(stopper);
  try {
    await receive(body, stopper.signal, reply.raw, (part) => reply.take(part));
  } catch (error) {
    problem = error instanceof Problem ? error : new Problem(BROKEN);
  }
  const end = following();
  busy(null);
  reply.end(stopper.signal.aborted ? "you" : "");
  if (mine !== chat) return true; // the user has started a new chat
  const first = reply.choices[0];
  if (problem && !stopper.signal.aborted) {
    say("");
    warn(problem.message);
    blame(problem.param);
    if (first) reply.box.append(make("p", { className: "note", textContent: "This answer is incomplete, and is not part of the conversation." }));
    return false;
  }
  say(problem ? "Stopped. The gateway cancels the request in the engine." : "The answer is complete.");
  if (first) {
    $("said").textContent = `${body.model}: ${first.text}`;
    history = [...messages, first.message(!problem)];
    if (!problem && first.calls.length) reply.box.append(resultsForm(first));
  }
  if (end) follow();
  return Boolean(first);
};

// What the tools gave, for the model to go on with.
const resultsForm = (choice) => {
  const texts = choice.calls.map((call) => {
    const text = make("textarea", { className: "code", rows: 2, required: true });
    return { text, call, label: make("label", {}, `Result of ${call.name}`, text) };
  });
  const form = make("form", {}, ...texts.map(({ label }) => label), make("p", { className: "buttons" }, make("button", { textContent: "Send the results" })));
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (running) return;
    form.hidden = true;
    const results = texts.map(({ text, call }) => ({ role: "tool", tool_call_id: call.id, content: text.value }));
    if (await answer([...history, ...results])) form.replaceWith(...results.map(({ content }) => make("pre", { textContent: content })));
    else form.hidden = false;
  };
  return form;
};

const send = async () => {
  const text = $("draft").value;
  if (running || !text.trim() || !$("model").value) return;
  const box = turn("You", "user");
  box.append(make("div", { className: "text", textContent: text }));
  follow();
  $("draft").value = "";
  const messages = [...history, { role: "user", content: text }];
  if (await answer(messages)) return;
  if (!$("draft").value) $("draft").value = text; // no complete answer came: the text can be sent again
  if (box === $("turns").lastElementChild) box.remove();
};

// ---- what is behind a request

const show = (title, text, ...more) => {
  $("dialog-title").textContent = title;
  $("dialog-content").replaceChildren(make("pre", { textContent: text, tabIndex: 0, role: "region", "aria-label": title }), ...more);
  $("copied").textContent = "";
  $("dialog").showModal();
};
const copy = async () => {
  const pre = $("dialog-content").querySelector("pre");
  try {
    await navigator.clipboard.writeText(pre.textContent);
    $("copied").textContent = "Copied.";
  } catch { // only pages of HTTPS and of this machine may
    getSelection().selectAllChildren(pre);
    $("copied").textContent = "The text is selected: copy it with the browser.";
  }
};
const showProgram = (name, body) => { show(name, programs[name](BASE, body, Boolean(key))); return copy(); };

const showPrompt = async (body) => {
  try {
    const rendered = await (await ask("v1/chat/completions/render", body)).json();
    const cells = (tag, texts) => make("tr", {}, ...texts.map((text) => make(tag, { textContent: text })));
    const part = (title, node) => [make("h3", { textContent: title }), node];
    const data = (tensor) => tensor.data.join(" ") + (tensor.size > tensor.data.length ? ` … ${tensor.size - tensor.data.length} more` : "");
    show("Exact prompt", rendered.prompt,
      make("p", { textContent: `${rendered.count} tokens of ${rendered.max_model_len}; up to ${rendered.max_tokens} for the answer. Sent to the Triton model ${rendered.triton_model}, path ${rendered.path}.` }),
      ...part("Token ids", make("pre", { textContent: (rendered.prompt_token_ids ?? []).join(" ") })),
      ...part("Tensors", make("table", {}, cells("th", ["name", "type", "shape", "data"]),
        ...rendered.tensors.map((tensor) => cells("td", [tensor.name, tensor.datatype, tensor.shape.join(" × "), data(tensor)])))));
  } catch (problem) { warn(problem.message); blame(problem.param); }
};

// ---- what the user does

$("keys").onsubmit = (event) => {
  event.preventDefault();
  const given = $("key").value.trim();
  if (!/^[ -~]+$/.test(given)) return warn("A key may contain only printable ASCII characters.");
  key = given;
  $("key").value = "";
  store.set(key);
  loadModels();
};
$("forget").onclick = () => { key = ""; store.set(""); $("forget").hidden = true; loadModels(); };
$("fresh").onclick = () => {
  running?.abort();
  chat += 1;
  history = [];
  $("turns").replaceChildren();
  warn("");
  say("New chat started.");
  $("draft").focus();
};
$("model").onchange = describeModel;
$("composer").onsubmit = (event) => { event.preventDefault(); send(); };
$("settings").onsubmit = (event) => event.preventDefault();
$("draft").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
};
$("stop").onclick = () => running?.abort();
document.onkeydown = (event) => {
  if (event.key !== "Escape") return;
  if (!tip.hidden) hideTip();
  else if (!$("dialog").open) running?.abort();
};
$("render").onclick = () => {
  try {
    const text = $("draft").value;
    showPrompt(requestOf(text.trim() ? [...history, { role: "user", content: text }] : history));
  } catch (problem) { warn(problem.message); blame(problem.param); }
};
for (const id of ["tools", "response_format"]) {
  $(`${id}-example`).onclick = () => {
    $(id).value = JSON.stringify(EXAMPLES[id], null, 2);
    $(id).focus();
    $(id).setSelectionRange(0, 0);
    $(id).scrollTop = 0;
  };
  $(id).oninput = () => $(id).removeAttribute("aria-invalid");
}
$("copy").onclick = copy;
$("close").onclick = () => $("dialog").close();

loadModels();
