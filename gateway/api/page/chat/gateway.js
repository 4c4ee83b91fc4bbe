// Requests to the gateway, with the key where it asks for one.
import { $, say, store, warn } from "./parts.js";
import { Problem, eventsOf, problemOf } from "./request.js";

export const BASE = new URL("v1", document.baseURI).href;
export const BROKEN = "The response ended early: the connection was lost.";

let key = store.get();
export const hasKey = () => Boolean(key);
export const setKey = (value) => { key = value; store.set(value); };

const askForKey = () => {
  $("keys").hidden = false;
  warn(key ? "The gateway does not accept this key." : "");
  say(key ? "" : "This gateway requires an API key.");
  $("key").focus();
};

export const ask = async (path, body, signal) => {
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

// Send a chat's request, and hand over each part of the reply, which is kept in raw.
export const receive = async (body, signal, raw, take) => {
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
