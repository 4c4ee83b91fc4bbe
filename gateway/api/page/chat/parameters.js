// The settings of a request, by what the model can serve.
import { $, make } from "./parts.js";
import { model } from "./models.js";
import { EXAMPLES, Problem, valueOf } from "./request.js";

const GROUPS = {
  Sampling: ["temperature", "top_p", "top_k", "min_p", "seed"],
  "Length and stops": ["max_tokens", "max_completion_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos", "include_stop_str_in_output",
    "no_stop_trim"],
  "Penalties and bans": ["presence_penalty", "frequency_penalty", "repetition_penalty", "no_repeat_ngram_size", "logit_bias", "bad_words"],
  "Several answers": ["n", "best_of", "use_beam_search", "length_penalty"],
  "Reasoning and prompt": ["reasoning_effort", "thinking_token_budget", "chat_template_kwargs", "chat_template", "documents", "add_generation_prompt",
    "continue_final_message", "echo", "truncate_prompt_tokens", "truncation_side"],
  "Structured output": ["structured_outputs", "json_schema", "regex", "ebnf", "grammar", "guided_json", "guided_regex", "guided_choice", "guided_grammar"],
};
const OTHERS = "Other parameters";
const NUMBERS = {
  temperature: { min: 0, max: 2, step: 0.1 }, max_tokens: { min: 1, step: 1 }, top_p: { min: 0, max: 1, step: 0.05 }, top_k: { min: -1, step: 1 },
  min_p: { min: 0, max: 1, step: 0.05 }, seed: { step: 1 }, n: { min: 1, step: 1 }, presence_penalty: { min: -2, max: 2, step: 0.1 },
  frequency_penalty: { min: -2, max: 2, step: 0.1 }, repetition_penalty: { min: 0, step: 0.1 },
};
const OWN = new Set(["model", "messages", "stream", "stream_options", "logprobs", "top_logprobs", "return_token_ids", "skip_special_tokens", "tools",
  "tool_choice", "response_format", "prompt", "suffix"]); // they have places of their own, or none in a chat
const SWITCHES = new Set(["ignore_eos", "include_stop_str_in_output", "no_stop_trim", "return_tokens_as_token_ids", "echo",
  "add_generation_prompt", "continue_final_message", "parallel_tool_calls", "store", "use_beam_search"]);
const typed = new Map(); // what was entered, whichever model it was for

const can = (name) => model?.capabilities?.[name];
const rejects = (name) => can(name)?.how === "impossible";
const isEmpty = (value) => value === undefined || (typeof value === "object" && Object.keys(value).length === 0);

const field = (name, about) => {
  const number = NUMBERS[name];
  const id = `p-${name}`;
  const given = { id, "aria-describedby": `${id}-why` };
  const usual = isEmpty(about.default) ? "" : JSON.stringify(about.default);
  const input = SWITCHES.has(name)
    ? make("select", given, ...["", "true", "false"].map((value) => make("option", { value, textContent: value || (usual ? `(${usual})` : "–") })))
    : make("input", { ...(number ? { type: "number", ...number } : { type: "text", spellcheck: false, autocomplete: "off" }), ...given, placeholder: usual });
  if (number && number.step !== 1) input.step = "any";
  input.value = typed.get(name) ?? "";
  input.dataset.name = name;
  input.oninput = () => {
    typed.set(name, input.value);
    input.removeAttribute("aria-invalid");
    count();
  };
  const limit = about.limit === undefined ? "" : ` At most ${about.limit}.`;
  return make("div", { className: "row" }, make("label", { htmlFor: id, textContent: name }), input,
    make("small", { id: `${id}-why`, textContent: about.note + limit }));
};

// How many values of each group are set.
const count = () => {
  for (const box of $("parameters").children) {
    const set = [...box.querySelectorAll("[data-name]")].filter(({ value }) => value.trim()).length;
    box.querySelector("summary span").textContent = set ? `${set} set` : "";
  }
};

const group = (title, fields, open) => make("details", { open }, make("summary", {}, `${title} `, make("span")), ...fields);

export const showSettings = () => {
  const isShown = ([name, about]) => !OWN.has(name) && !name.includes(".") && about.class !== "output";
  const known = new Map(Object.entries(model.capabilities ?? {}).filter(isShown).sort());
  const rejected = [...known].filter(([, about]) => about.how === "impossible");
  for (const [name] of rejected) known.delete(name);
  const opened = [...$("parameters").children].filter(({ open }) => open).map((box) => box.dataset.title);
  const groups = Object.entries(GROUPS).map(([title, names]) => [title, names.filter((name) => known.has(name))]);
  const grouped = new Set(groups.flatMap(([, names]) => names));
  groups.push([OTHERS, [...known.keys()].filter((name) => !grouped.has(name))]);
  const open = opened.length ? opened : ["Sampling", "Length and stops"];
  $("parameters").replaceChildren(...groups.filter(([, names]) => names.length).map(([title, names]) => {
    const box = group(title, names.map((name) => field(name, known.get(name))), open.includes(title));
    box.dataset.title = title;
    return box;
  }));
  $("rejected").replaceChildren(...rejected.map(([name, { note }]) =>
    make("div", { className: "row" }, make("dt", { textContent: name }), make("dd", { textContent: note }))));
  $("rejected-count").textContent = `(${rejected.length})`;
  showFixed();
  count();
  filter();
};

// The fields with places of their own.
const showFixed = () => {
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

// Show what has a word in its name, and unfold its group; else groups with the word in their titles. Without a word, all is as it was.
const filter = () => {
  const word = $("filter").value.trim().toLowerCase();
  const has = (node) => node?.textContent.toLowerCase().includes(word);
  for (const box of $("settings").querySelectorAll("details")) {
    const rows = [...box.querySelectorAll(".row")];
    for (const row of rows) row.hidden = !has(row.querySelector("label, dt"));
    const none = rows.every(({ hidden }) => hidden);
    box.hidden = none && !has(box.querySelector("summary"));
    if (none) rows.forEach((row) => { row.hidden = false; });
    if (word) {
      box.dataset.was ??= String(box.open);
      box.open = true;
    } else if (box.dataset.was) {
      box.open = box.dataset.was === "true";
      delete box.dataset.was;
    }
  }
};

// A field at fault is shown with the sentence.
export const blame = (name) => {
  const at = name?.split(/[.[]/)[0];
  const input = document.querySelector(`#settings [data-name="${CSS.escape(at ?? "")}"]`) ?? (OWN.has(at) ? $(at) : null);
  if (!input || input === $("model")) return;
  input.setAttribute("aria-invalid", "true");
  const box = input.closest("details");
  if (box) box.open = true;
};

// Log-probs are asked for unless the user says otherwise: a request that cannot have them goes without. Returns whether it may.
export const dropTints = ({ status, param, message }) => {
  if (status !== 400 || !/^(top_)?logprobs$/.test(param) || $("logprobs").dataset.chosen || !$("logprobs").checked) return false;
  $("logprobs").checked = false;
  $("logprobs-why").textContent = message;
  return true;
};

const json = (id) => {
  const text = $(id).value;
  if ($(id).disabled || !text.trim()) return undefined;
  try { return JSON.parse(text); } catch (error) {
    throw new Problem(`${id} is not valid JSON: ${error.message}`, 0, id);
  }
};

const tokensOf = (body, on) => {
  if (on("special")) body.skip_special_tokens = false;
  if (!on("logprobs")) return;
  body.logprobs = true;
  const most = $("top_logprobs").valueAsNumber;
  if (most > 0 && !$("top_logprobs").disabled) body.top_logprobs = most;
  if (on("return_token_ids")) body.return_token_ids = true;
};

export const requestOf = (messages) => {
  const body = { model: $("model").value, messages };
  if ($("system").value.trim()) body.messages = [{ role: "system", content: $("system").value }, ...messages];
  for (const input of $("parameters").querySelectorAll("[data-name]")) {
    if (input.validity?.badInput) throw new Problem(`${input.dataset.name} is not a number.`, 0, input.dataset.name);
    const value = valueOf(input.value);
    if (value !== undefined) body[input.dataset.name] = value;
  }
  const on = (id) => $(id).checked && !$(id).disabled;
  tokensOf(body, on);
  const tools = json("tools");
  if (tools) body.tools = tools;
  if (tools && $("tool_choice").value && !$("tool_choice").disabled) body.tool_choice = $("tool_choice").value;
  const schema = json("response_format");
  if (schema) body.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
  body.stream = on("stream");
  if (body.stream && !rejects("stream_options.include_usage")) body.stream_options = { include_usage: true };
  return body;
};

$("settings").onsubmit = (event) => event.preventDefault();
$("filter").oninput = filter;
$("logprobs").oninput = $("top_logprobs").oninput = () => { $("logprobs").dataset.chosen = "yes"; };
$("reset").onclick = () => { typed.clear(); showSettings(); };
for (const id of ["tools", "response_format"]) {
  $(`${id}-example`).onclick = () => {
    $(id).value = JSON.stringify(EXAMPLES[id], null, 2);
    $(id).focus();
    $(id).setSelectionRange(0, 0);
    $(id).scrollTop = 0;
  };
  $(id).oninput = () => $(id).removeAttribute("aria-invalid");
}
