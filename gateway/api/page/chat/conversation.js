// The conversation: what was said, and what may be done with it.
import { $, button, copyButton, make, say, warn } from "./parts.js";
import { listChats } from "./chats.js";
import { BROKEN, receive } from "./gateway.js";
import { blame, dropTints, requestOf } from "./parameters.js";
import { Reply, follow, following } from "./reply.js";
import { Problem } from "./request.js";
import * as chats from "./store.js";

let entries = []; // each with its node and its message; that is null where it is not part of the conversation
const newId = () => `${Date.now()}-${Math.random()}`;
let id = newId(); // of the conversation
let running = null; // what stops the answer
export const isRunning = () => Boolean(running);
export const stop = () => running?.abort();

const messages = () => entries.flatMap(({ message }) => message ?? []);
const busy = (stopper) => {
  running = stopper;
  $("send").hidden = $("send").disabled = Boolean(stopper);
  const focused = document.activeElement === $("stop");
  $("stop").hidden = !stopper;
  if (focused) $("draft").focus();
};

const article = (who, kind) => {
  const box = make("article", { className: `turn ${kind}` }, make("h2", { textContent: who }));
  $("turns").append(box);
  return box;
};
const row = (label, ...buttons) => make("div", { className: "buttons small", role: "group", "aria-label": label }, ...buttons);

// ---- what is stored

const save = () => {
  const said = entries.filter(({ message }) => message);
  const first = said.find(({ message }) => message.role === "user")?.message.content ?? "";
  const stored = said.map(({ message, model, figures }) => ({ message, model, figures }));
  const gone = said.length ? chats.save({ id, title: first.trim().split("\n")[0].slice(0, 60), at: Date.now(), entries: stored }) : chats.remove(id);
  if (gone) say(gone > 0 ? `To make room, ${gone} older conversations were deleted.` : "This conversation is not stored: the browser has no room for it.");
  list();
};
const list = () => listChats(id, open, (other) => {
  chats.remove(other);
  if (other === id) fresh();
  else list();
});

const begin = (other) => {
  stop();
  id = other;
  entries = [];
  $("turns").replaceChildren($("welcome"));
  warn("");
  $("draft").focus();
};
export const fresh = () => {
  begin(newId());
  say("New chat started.");
  list();
};
const open = (chat) => {
  begin(chat.id);
  for (const { message, model, figures } of chat.entries) {
    if (message.role === "user") addQuestion(message.content);
    else if (message.role === "tool") addResult(message);
    else {
      const reply = new Reply({ model, stream: false }, article(model, "model"));
      reply.take({ choices: [{ index: 0, message }] });
      reply.end();
      addAnswer(reply, message, figures);
    }
  }
  follow();
  list();
};

// ---- what was said

const free = (act) => () => (running ? say("Stop the answer first.") : act());
const cut = (entry) => { // it and what follows
  for (const { box } of entries.splice(entries.indexOf(entry))) box.remove();
};

const addQuestion = (content) => {
  const text = make("div", { className: "text plain", textContent: content });
  const entry = { message: { role: "user", content }, content, box: article("You", "user") };
  const buttons = row("This message", copyButton(() => content, text), button("Edit", free(() => edit(entry, text, buttons))),
    button("Delete", free(() => remove(entry))));
  entry.box.append(text, buttons);
  entries.push(entry);
  return entry;
};

const addAnswer = (reply, message, figures) => {
  const entry = { message, model: reply.body.model, figures, box: reply.box };
  entries.push(entry);
  reply.box.append(make("p", { className: "figures", textContent: figures }),
    row("This answer", ...reply.buttons(), button("Regenerate", free(() => regenerate(entry)))));
  return entry;
};

const addResult = (message) => {
  const entry = { message, box: make("pre", { textContent: message.content }) };
  $("turns").lastElementChild.append(entry.box);
  entries.push(entry);
  return entry;
};

const regenerate = (entry) => {
  const before = entries[entries.indexOf(entry) - 1];
  cut(entry);
  before.message ??= { role: "user", content: before.content }; // an incomplete answer took it out
  if ($("draft").value === before.content) $("draft").value = "";
  return answer();
};

const edit = (entry, text, buttons) => {
  const field = make("textarea", { value: entry.content, rows: 3, ariaLabel: "Message" });
  const form = make("form", {}, field, make("p", { className: "buttons" }, make("button", { className: "main", textContent: "Send again" }),
    button("Cancel", () => { form.remove(); text.hidden = buttons.hidden = false; })));
  form.onsubmit = (event) => {
    event.preventDefault();
    if (running || !field.value.trim()) return;
    cut(entry);
    send(field.value);
  };
  text.hidden = buttons.hidden = true;
  entry.box.append(form);
  field.focus();
};

const remove = (entry) => { // with what answers it
  const from = entries.indexOf(entry);
  const to = entries.findIndex(({ box }, index) => index > from && box.classList.contains("user"));
  for (const { box } of entries.splice(from, (to < 0 ? entries.length : to) - from)) box.remove();
  save();
};

// ---- what is asked

// Send the conversation, show what comes, and keep a whole answer. Returns whether one came.
const answer = async () => {
  const sent = entries;
  let body;
  for (const field of document.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  try { body = requestOf(messages()); } catch (problem) { warn(problem.message); blame(problem.param); return false; }
  warn("");
  say("Waiting for the first token.");
  $("said").textContent = "";
  const stopper = new AbortController();
  const reply = new Reply(body, article(body.model, "model"));
  let problem = null;
  busy(stopper);
  follow();
  try {
    await receive(body, stopper.signal, reply.raw, (part) => reply.take(part));
  } catch (error) {
    problem = error instanceof Problem ? error : new Problem(BROKEN);
  }
  const stay = following();
  if (running === stopper) busy(null);
  const figures = reply.end(stopper.signal.aborted ? "you" : "");
  if (sent !== entries) return true; // the user has gone to another conversation
  const done = problem && !stopper.signal.aborted ? failed(problem, reply, figures) : came(reply, figures, !problem);
  if (stay) follow();
  return done;
};

const came = (reply, figures, whole) => {
  say(whole ? "The answer is complete." : "Stopped. The gateway cancels the request in the engine.");
  const first = reply.choices[0];
  if (!first) return false;
  $("said").textContent = `${reply.body.model}: ${first.text}`;
  addAnswer(reply, first.message(whole), figures);
  if (whole && first.calls.length) reply.box.append(resultsForm(first));
  save();
  return true;
};

const failed = (problem, reply, figures) => {
  if (!reply.choices[0] && dropTints(problem)) return answer();
  say("");
  warn(problem.message);
  blame(problem.param);
  if (!reply.choices[0]) return false;
  addAnswer(reply, null, figures);
  reply.box.append(make("p", { className: "note", textContent: "This answer is incomplete, and is not part of the conversation." }));
  return false;
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
    const results = texts.map(({ text, call }) => addResult({ role: "tool", tool_call_id: call.id, content: text.value }));
    if (await answer()) return form.remove();
    cut(results[0]);
    form.hidden = false;
  };
  return form;
};

export const send = async (text) => {
  if (running || !text.trim() || !$("model").value) return;
  const entry = addQuestion(text);
  if (await answer()) return;
  if (!$("draft").value) $("draft").value = text; // no complete answer came: the text can be sent again
  entry.message = null;
  if (entry === entries.at(-1)) cut(entry);
  save();
};

// The request that a text would make.
export const draftedRequest = (text) => requestOf(text.trim() ? [...messages(), { role: "user", content: text }] : messages());

list();
