// The tokens of an answer with their probabilities: tints in the text, a list of all of them, and a tip to each.
import { $, lastBefore, make } from "./parts.js";
import { percent, shown } from "./request.js";

const special = new Set(); // control tokens of the model
export const setSpecial = (tokens) => { special.clear(); tokens.forEach((token) => special.add(token)); };
const share = ({ logprob }) => Math.exp(logprob).toFixed(3);

// The tokens as they come, and where each lies in the answer's text. Entries are of all that the model wrote, its reasoning and calls too;
// their bytes make the whole text, in which that of the answer is looked for.
export class Tokens {
  constructor() {
    this.all = []; // at: in the whole text; id: once it is known
    this.whole = "";
    this.shift = -1; // from the answer's text to the whole one
    this.decoder = new TextDecoder();
  }

  add(entry) {
    this.all.push({ entry, at: this.whole.length });
    this.whole += entry.bytes ? this.decoder.decode(new Uint8Array(entry.bytes), { stream: true }) : entry.token;
  }

  // Ids may come before their entries: whose they are is certain once there are as many.
  name(ids) { if (ids.length === this.all.length) ids.forEach((id, index) => { this.all[index].id = id; }); }

  find(text) {
    const known = text.replace(/\ufffd$/, ""); // an unfinished character at the end
    this.shift = this.whole.length && known.startsWith(this.whole) ? 0 : this.whole.lastIndexOf(known);
  }

  // A writer of the renderer: a part of the answer as spans, one a token.
  write(node, text, at) {
    let from = at + this.shift;
    const end = this.shift < 0 ? from : Math.min(from + text.length, this.whole.length);
    const rest = text.slice(Math.max(0, end - from));
    for (let index = lastBefore(this.all, from); from < end; index += 1) {
      const to = Math.min(end, this.all[index + 1]?.at ?? end);
      if (to > from) node.append(this.span(this.all[index], text.slice(from - at - this.shift, to - at - this.shift)));
      from = to;
    }
    if (rest) node.append(rest);
  }

  span(token, textContent) {
    const node = make("span", { className: "tint", textContent });
    node.style.setProperty("--p", share(token.entry));
    node.token = token;
    return node;
  }

  // All of them, with signs for what has none. One stop of the Tab key; arrows go from token to token.
  list() {
    const list = make("div", { className: "tokens", role: "group", "aria-label": "Tokens with their probabilities; arrow keys go through them" });
    for (const [index, token] of this.all.entries()) list.append(listed(token, index));
    list.onkeydown = (event) => {
      const at = event.target;
      const [next, previous] = [at.nextElementSibling, at.previousElementSibling];
      const to = { ArrowRight: next, ArrowLeft: previous, Home: list.firstElementChild, End: list.lastElementChild }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      go(to);
    };
    return list;
  }
}

const listed = (token, index) => {
  const { entry } = token;
  const text = shown(entry);
  const node = make("span", { className: special.has(entry.token) ? "token special" : "token", textContent: text, role: "button", tabIndex: index ? -1 : 0,
    "aria-label": `${text.trim() || "space"}, ${percent(entry.logprob)}` });
  node.style.setProperty("--p", share(entry));
  node.token = token;
  return node;
};

const go = (to) => {
  if (!to?.token) return;
  to.parentNode.querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
  to.setAttribute("tabindex", "0");
  to.focus();
};

// ---- the tip

let pinned = null;
const place = (node) => {
  const tip = $("tip");
  const at = node.getClientRects()[0] ?? node.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - tip.offsetWidth - 8));
  const below = at.bottom + tip.offsetHeight + 8 < innerHeight || at.top < tip.offsetHeight + 8;
  tip.style.left = `${left + scrollX}px`;
  tip.style.top = `${scrollY + (below ? at.bottom + 4 : at.top - tip.offsetHeight - 4)}px`;
};

const showTip = (node) => {
  const { entry, id } = node.token;
  const rows = [...(entry.top_logprobs ?? [])];
  if (!rows.some((one) => one.token === entry.token)) rows.push(entry);
  const about = ` ${percent(entry.logprob)}, log-prob ${entry.logprob.toFixed(3)}${id === undefined ? "" : `, id ${id}`}`;
  $("tip").replaceChildren(
    make("p", {}, make("code", { textContent: shown(entry) }), about + (special.has(entry.token) ? ", special" : "")),
    make("table", {}, ...rows.map((one) => make("tr", {}, make("td", {}, make("code", { textContent: shown(one) })),
      make("td", {}, make("meter", { value: Math.exp(one.logprob), max: 1, ariaHidden: "true" })),
      make("td", { textContent: percent(one.logprob) + (one.token === entry.token ? " ✓" : "") })))));
  $("tip").hidden = false;
  place(node);
  node.setAttribute("aria-describedby", "tip");
};

export const hideTip = () => {
  const hidden = $("tip").hidden;
  $("tip").hidden = true;
  pinned = null;
  document.querySelector("[aria-describedby=tip]")?.removeAttribute("aria-describedby");
  return !hidden;
};

// Show tips to the tokens within a box, by pointer and by focus.
export const watchTokens = (box) => {
  const leave = (event) => { // the pointer may go onto it
    if (!pinned && !$("tip").contains(event.relatedTarget) && document.activeElement?.token === undefined) hideTip();
  };
  $("tip").onmouseleave = leave;
  box.onmouseover = ({ target }) => { if (target.token && !pinned) showTip(target); };
  box.onmouseout = leave;
  box.addEventListener("focusin", ({ target }) => { if (target.token) { pinned = null; showTip(target); } });
  box.addEventListener("focusout", ({ target }) => { if (target.token) hideTip(); });
  box.onclick = ({ target }) => {
    if (target.role === "button" && target.token) go(target);
    if (target.token) showTip(target);
    else hideTip();
    pinned = target.token ? target : null;
  };
};
