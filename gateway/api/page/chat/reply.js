// The reply to a request, as it comes.
import { $, button, copyButton, make, say } from "./parts.js";
import { requestMenu } from "./behind.js";
import { Markdown } from "./render.js";
import { Problem, figures } from "./request.js";
import { Tokens, watchTokens } from "./tokens.js";

// ---- the end of the conversation stays in view while it grows, unless the user looks at something else

export const following = () => {
  const box = $("turns");
  const focused = document.activeElement; // the body after a click on Send, which cannot be clicked any more
  return box.scrollHeight - box.scrollTop - box.clientHeight < 80 && ($("composer").contains(focused) || focused === document.body);
};
export const follow = () => { $("turns").scrollTop = $("turns").scrollHeight; };

class Choice { // one of the answers to a request
  constructor(box, index) {
    this.text = "";
    this.shown = "";
    this.reasoning = "";
    this.calls = [];
    this.ids = [];
    this.finish = null;
    this.tokens = new Tokens();
    this.words = make("div", { className: "text" });
    this.box = make("div", {}, ...(index ? [make("h3", { textContent: `Choice ${index + 1}` })] : []), this.words);
    this.markdown = new Markdown(this.words, (node, text, at) => this.tokens.write(node, text, at));
    watchTokens(this.box);
    box.append(this.box);
  }

  take(choice) {
    const delta = choice.delta ?? choice.message ?? {};
    const thought = delta.reasoning_content ?? delta.reasoning;
    if (thought) this.think(thought);
    this.text += (delta.content ?? "") + (delta.refusal ?? "");
    for (const [at, part] of (delta.tool_calls ?? []).entries()) this.call(part.index ?? at, part);
    if (delta.function_call) this.call(0, { function: delta.function_call });
    const entries = choice.logprobs?.content ?? [];
    this.ids.push(...choice.token_ids ?? []);
    for (const entry of entries) this.tokens.add(entry);
    this.finish = choice.finish_reason ?? this.finish;
    return Boolean(thought || delta.content || delta.tool_calls || delta.function_call || entries.length);
  }

  think(text) {
    if (!this.thoughts) {
      this.thoughts = make("div", { className: "plain" });
      this.words.before(make("details", { className: "thoughts" }, make("summary", { textContent: "Reasoning" }), this.thoughts));
    }
    this.reasoning += text;
    this.thoughts.append(text);
  }

  draw(options) {
    if (this.shown === this.text && !options) return;
    this.shown = this.text;
    this.tokens.find(this.text);
    this.markdown.show(this.text, options);
  }

  end() {
    this.tokens.name(this.ids);
    this.draw({ anew: true });
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

// The parts of a reply in an article, with their times since the request was sent.
export class Reply {
  constructor(body, box) {
    this.body = body;
    this.box = box;
    this.box.setAttribute("aria-busy", "true");
    this.choices = [];
    this.raw = [];
    this.times = {};
    this.sent = performance.now();
    this.cost = 0; // ms of the last drawing
  }

  now() { return (performance.now() - this.sent) / 1000; }

  take(part) {
    if (part.error) throw new Problem(`The gateway ended the response with an error: ${part.error.message}`);
    this.usage = part.usage ?? this.usage;
    for (const choice of part.choices ?? []) {
      this.choices[choice.index] ??= new Choice(this.box, choice.index);
      if (!this.choices[choice.index].take(choice) || !this.body.stream) continue; // the first token of a non-streaming response has no time
      if (this.times.first === undefined) say("Receiving the answer.");
      this.times.first ??= this.now();
      this.times.last = this.now();
    }
    this.drawSoon();
  }

  // Once a frame at most, since drawing makes the browser lay out the answer, and for a fifth of the time at most.
  drawSoon() {
    if (this.isDue) return;
    this.isDue = true;
    setTimeout(() => requestAnimationFrame(() => {
      this.isDue = false;
      if (this.times.end !== undefined) return;
      const begun = performance.now();
      this.draw();
      this.cost = performance.now() - begun;
    }), 4 * this.cost);
  }

  draw(drawOne = (choice) => choice.draw()) {
    const stay = following();
    this.choices.forEach(drawOne);
    if (stay) follow();
  }

  // ending: the words for an end that the server did not give a reason for. Returns the figures of the reply, if there is one.
  end(ending) {
    this.times.end = this.now();
    this.box.removeAttribute("aria-busy");
    const first = this.choices[0];
    if (!first) return this.box.remove();
    this.draw((choice) => choice.end());
    return figures(this.usage, this.times, first.finish ?? ending);
  }

  buttons() {
    const first = this.choices[0];
    const seen = this.choices.some(({ tokens }) => tokens.all.length) ? [tokensButton(this.choices)] : [];
    return [copyButton(() => first.text, first.words), ...seen, ...(this.body.messages ? [requestMenu(this.body, this.raw)] : [])];
  }
}

// Show the tokens one by one in place of the text, and the text again.
const tokensButton = (choices) => {
  const made = button("Tokens", () => {
    const on = made.getAttribute("aria-pressed") === "false";
    made.setAttribute("aria-pressed", String(on));
    for (const choice of choices) {
      choice.list ??= choice.tokens.list();
      if (on) choice.words.after(choice.list);
      else choice.list.remove();
      choice.words.hidden = on;
    }
  });
  made.setAttribute("aria-pressed", "false");
  return made;
};
