// The chat page. Texts of models, servers and users are written as text, never as markup.
import { $, button, say, warn } from "./parts.js";
import { showPrompt } from "./behind.js";
import "./compare.js";
import { draftedRequest, fresh, isRunning, send, stop } from "./conversation.js";
import { setKey } from "./gateway.js";
import { describeModel, loadModels, model, watchModel } from "./models.js";
import { blame, showSettings } from "./parameters.js";
import { hideTip } from "./tokens.js";

const PROMPTS = [
  "Why is the sky blue? Answer in three sentences.",
  "Compare TCP and UDP in a table.",
  "Write a Python function that tells whether a number is prime, with a test.",
  "Give me three names for a bakery, with a reason for each.",
];

// What a model is for decides what is shown.
const showModel = () => {
  const { id, max_model_len: length, gateway } = model;
  const chats = gateway.task === "generate";
  for (const name of ["turns", "composer", "settings", "open-settings", "fresh"]) $(name).hidden = !chats;
  $("compare").hidden = chats;
  $("welcome-model").textContent = id;
  $("welcome-facts").textContent = [length && `${length.toLocaleString("en")} tokens of context`, gateway.family && `family ${gateway.family}`,
    gateway.path && `path ${gateway.path}`].filter(Boolean).join(" · ");
  if (chats) showSettings();
};

const sendDraft = () => {
  const text = $("draft").value;
  if (isRunning() || !text.trim() || !$("model").value) return;
  $("draft").value = "";
  send(text);
};

$("keys").onsubmit = (event) => {
  event.preventDefault();
  const given = $("key").value.trim();
  if (!/^[ -~]+$/.test(given)) return warn("A key may contain only printable ASCII characters.");
  $("key").value = "";
  setKey(given);
  loadModels();
};
$("forget").onclick = () => { setKey(""); $("forget").hidden = true; loadModels(); };
$("fresh").onclick = fresh;
$("model").onchange = describeModel;
$("composer").onsubmit = (event) => { event.preventDefault(); sendDraft(); };
$("draft").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  sendDraft();
};
$("stop").onclick = stop;
document.onkeydown = (event) => {
  if (event.key === "Escape" && !hideTip() && !document.querySelector("dialog[open], :popover-open")) stop();
};
$("render").onclick = () => {
  try { showPrompt(draftedRequest($("draft").value)); } catch (problem) { warn(problem.message); blame(problem.param); }
};
$("examples").replaceChildren(...PROMPTS.map((text) => button(text, () => send(text))));
for (const width of [64, 80]) // a drawer that became a column is not a drawer any more
  matchMedia(`(min-width: ${width}rem)`).onchange = () => document.querySelectorAll(":popover-open").forEach((drawer) => drawer.hidePopover());
// The page of the API may be off.
fetch("docs", { method: "HEAD" }).then(({ ok }) => { $("api").hidden = !ok; }, () => {});

watchModel(showModel, () => !isRunning());
say("");
loadModels();
