// What is behind a request: its exact prompt, its programs, its raw answer, in a dialog.
import { $, button, make, warn } from "./parts.js";
import { BASE, ask, hasKey } from "./gateway.js";
import { blame } from "./parameters.js";
import { programs } from "./request.js";

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
const showProgram = (name, body) => { show(name, programs[name](BASE, body, hasKey())); return copy(); };

export const showPrompt = async (body) => {
  try {
    const rendered = await (await ask("v1/chat/completions/render", body)).json();
    const cells = (tag, texts) => make("tr", {}, ...texts.map((text) => make(tag, { textContent: text })));
    const part = (title, node) => [make("h3", { textContent: title }), node];
    const data = (tensor) => tensor.data.join(" ") + (tensor.size > tensor.data.length ? ` … ${tensor.size - tensor.data.length} more` : "");
    const { count, max_model_len, max_tokens, triton_model, path } = rendered;
    show("Exact prompt", rendered.prompt,
      make("p", { textContent: `${count} tokens of ${max_model_len}; up to ${max_tokens} for the answer. Triton model ${triton_model}, path ${path}.` }),
      ...part("Token ids", make("pre", { textContent: (rendered.prompt_token_ids ?? []).join(" ") })),
      ...part("Tensors", make("table", {}, cells("th", ["name", "type", "shape", "data"]),
        ...rendered.tensors.map((tensor) => cells("td", [tensor.name, tensor.datatype, tensor.shape.join(" × "), data(tensor)])))));
  } catch (problem) { warn(problem.message); blame(problem.param); }
};

export const requestMenu = (body, raw) => make("details", { className: "menu" }, make("summary", { textContent: "Request" }),
  make("div", { className: "buttons small", role: "group", "aria-label": "This request" },
    ...Object.keys(programs).map((name) => button(`Copy as ${name}`, () => showProgram(name, body))),
    button("Exact prompt", () => showPrompt(body)),
    button("Raw answer", () => show("Raw answer", raw.join("\n")))));

$("copy").onclick = copy;
$("close").onclick = () => $("dialog").close();
