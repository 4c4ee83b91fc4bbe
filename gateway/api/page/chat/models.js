// The models of the gateway, and the state of the one that is chosen.
import { $, make, say, warn } from "./parts.js";
import { ask, hasKey } from "./gateway.js";
import { setSpecial } from "./tokens.js";

const RETRY_MS = 3000;
// What an operator looks at, by the state of a model.
export const STATES = {
  unreachable: "Triton cannot be reached, or what is there does not reply as Triton does: check its address and that it runs.",
  loading: "Triton is there, and the model is not: it loads, was unloaded or failed to load, as Triton's log says.",
  stalled: "The engine gave no token to the gateway's one-token test: restart Triton if this lasts.",
  failing: "The engine fails requests: see Triton's log for the first error.",
  mismatched: "The model cannot be served as it is configured: `gateway check` says which setting to change.",
};
const TASKS = { generate: "Chat", embed: "Embeddings" };

export let model = null; // as the gateway describes it
let retry = 0;
let show = () => {}; // the settings of another model
let idle = () => true; // whether the line of states is free
export const watchModel = (shows, isIdle) => { show = shows; idle = isIdle; };
const again = (task) => { clearTimeout(retry); retry = setTimeout(task, RETRY_MS); };

export const loadModels = async () => {
  clearTimeout(retry);
  say("Loading the models.");
  try {
    const data = (await (await ask("v1/models")).json()).data.filter(({ gateway }) => gateway.task in TASKS);
    const before = $("model").value;
    if (!$("keys").hidden) $("draft").focus();
    $("keys").hidden = true;
    $("forget").hidden = !hasKey();
    $("model").replaceChildren(...Object.entries(TASKS).map(([task, label]) => [label, data.filter(({ gateway }) => gateway.task === task)])
      .filter(([, found]) => found.length)
      .map(([label, found]) => make("optgroup", { label }, ...found.map(({ id }) => make("option", { textContent: id, selected: id === before })))));
    $("model").disabled = data.length === 0;
    warn("");
    if (data.length) await describeModel();
    else say("This key has no access to any model that generates text or embeds it.");
  } catch (problem) {
    if (problem.status === 401) return;
    say("");
    warn(problem.message);
    again(loadModels);
  }
};

export const describeModel = async () => {
  clearTimeout(retry);
  const id = $("model").value;
  try {
    const found = await (await ask(`v1/models/${id.split("/").map(encodeURIComponent).join("/")}`)).json();
    if (id !== $("model").value) return;
    const same = JSON.stringify(model?.capabilities) === JSON.stringify(found.capabilities) && model.id === found.id;
    model = found;
    if (!same) show();
    showState(id, model.gateway);
    if (!model.gateway.ready) again(describeModel);
    else if (!same && model.gateway.task === "generate") { // without them, tokens are only not marked
      const known = await ask(`tokenizer_info?model=${encodeURIComponent(id)}`).then((one) => one.json()).catch(() => ({}));
      setSpecial(known.control_tokens ?? []);
    }
  } catch (problem) {
    if (problem.status === 401) return;
    warn(problem.message);
    again(loadModels);
  }
};

const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

// What is wrong is an alert; what is not whole is a note.
const showState = (id, { ready, state, reason, endpoints, losses, cures }) => {
  $("state").dataset.state = ready && state === "ready" ? "ready" : ready ? "partly" : "unready";
  $("state").title = `${id}: ${state}`;
  const troubled = (endpoints ?? []).filter((one) => one.state !== "ready").map((one) => one.state);
  const notes = [
    ...(ready && state !== "ready" ? [`${id} is ${state} for a part of its requests. ${STATES[state] ?? ""}`] : []),
    ...(ready && endpoints?.length > 1 && troubled.length ? [`${troubled.length} of its ${endpoints.length} Tritons: ${troubled.join(", ")}.`] : []),
    ...(losses ?? []).map((loss) => `Answers are incomplete: ${sentence(loss)} ${cures?.[loss] ?? ""}`),
  ];
  $("notes").replaceChildren(...notes.map((textContent) => make("li", { textContent })));
  if (ready) {
    if ($("alert").dataset.unready) warn("");
    delete $("alert").dataset.unready;
    if (idle()) say(`${id} is ready.`);
    return;
  }
  say("");
  $("alert").dataset.unready = "yes";
  const text = `${id} cannot be served now: ${sentence(reason)} State: ${state}. ${STATES[state] ?? ""}`;
  if ($("alert").textContent !== text) warn(text);
};
