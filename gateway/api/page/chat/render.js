// Markdown as nodes: paragraphs, headings, lists, quotations, tables, code, emphasis and links. All text becomes text nodes, and nothing that
// it says becomes markup, but for <br>. Links lead to http, https and mailto alone; images are links. Times are linear in the length.
import { copyButton, lastBefore, make } from "./parts.js";

const DEEPEST = 8; // lists and quotations within each other
const MOST_OPEN = 16; // emphasis and brackets within each other
const SCHEMES = new Set(["http:", "https:", "mailto:"]);

// The address of a link; null where it may not be one.
const addressOf = (text) => {
  let url;
  try { url = new URL(text); } catch { return null; }
  return SCHEMES.has(url.protocol) ? url.href : null;
};
const asLink = (node, href) => Object.assign(node, { href, title: href, target: "_blank", rel: "noopener noreferrer" });
const move = (from, to) => { while (from.firstChild) to(from.firstChild); };

// ---- within a line

const SIGN = /[\\`*_~[\]!<]|https?:\/{2}/g;
const TARGET = /\(\s{0,9}(?:<([^<>\n]{0,2000})>|((?:[^\s()<]|\([^\s()]{0,200}\)){1,2000}))(?:\s{1,9}(?:"[^"]{0,300}"|'[^']{0,300}'))?\s{0,9}\)/y;
const ANGLE = /<(?:(br) ?\/?|((?:https?:\/\/|mailto:)[^\s<>]{1,2000}))>/iy;
const BARE = /https?:\/\/[^\s<>"`|\\^{}]{1,2000}/y;
const WORD = /[\p{L}\p{N}_]/u;
const EMPHASIS = { "*1": "em", "*2": "strong", _1: "em", _2: "strong", "~2": "del" };
const READERS = { "\\": "escape", "`": "code", "*": "emphasis", _: "emphasis", "~": "emphasis", "[": "bracket", "!": "bracket", "]": "link", "<": "angle" };
const matchAt = (pattern, text, at) => { pattern.lastIndex = at; return pattern.exec(text); };

class Inline {
  // lines: each with its text and its place in the source; write: appends a part of the source, with its place, to a node.
  constructor(node, lines, write) {
    this.text = lines.map(({ text }) => text).join("\n");
    this.write = write;
    this.lines = []; // at: in the joined text; shift: from there to the source
    let at = 0;
    for (const line of lines) {
      this.lines.push({ at, shift: line.at - at });
      at += line.text.length + 1;
    }
    this.open = [{ node }]; // what is not closed yet, outermost first
    this.links = [];
    this.read();
  }

  get top() { return this.open.at(-1); }

  put(from, to, node = this.top.node) {
    for (let line = lastBefore(this.lines, from); from < to; line += 1) {
      const end = Math.min(to, this.lines[line + 1]?.at ?? to);
      this.write(node, this.text.slice(from, end), from + this.lines[line].shift);
      from = end;
    }
    return to;
  }

  read() {
    for (let at = 0; at < this.text.length;) {
      const found = matchAt(SIGN, this.text, at);
      at = this.put(at, found?.index ?? this.text.length);
      if (found) at = this[READERS[found[0]] ?? "bare"](at) ?? this.put(at, at + 1);
    }
    this.flatten(this.open[1]);
  }

  escape(at) {
    return /[!-/:-@[-`{-~\n]/.test(this.text[at + 1] ?? "") ? this.put(at + 1, at + 2) : null;
  }

  code(at) {
    const size = matchAt(/`+/y, this.text, at)[0].length;
    this.runs ??= new Map(Array.from(this.text.matchAll(/`+/g), ({ 0: { length }, index }) => [length, index])); // the last of each length
    if (this.runs.get(size) <= at) return this.put(at, at + size);
    const next = /`+/g;
    next.lastIndex = at + size;
    let end = next.exec(this.text);
    while (end[0].length !== size) end = next.exec(this.text);
    const inner = this.text.slice(at + size, end.index);
    const pad = inner.trim() && inner.startsWith(" ") && inner.endsWith(" ") ? 1 : 0;
    const node = make("code");
    this.put(at + size + pad, end.index - pad, node);
    this.top.node.append(node);
    return end.index + size;
  }

  emphasis(at) {
    const sign = this.text[at];
    let end = at;
    while (this.text[end] === sign) end += 1;
    const before = this.text[at - 1] ?? " ", after = this.text[end] ?? " ";
    const within = sign === "_" && WORD.test(before) && WORD.test(after); // a_name
    if (within || end - at > 3 || (sign === "~" && end - at !== 2)) return this.put(at, end);
    while (at < end && /\S/.test(before)) {
      const since = this.open.findLastIndex((one) => one.sign === "[");
      const opened = this.open.findLast((one, index) => index > since && one.sign === sign && one.size <= end - at);
      if (!opened) break;
      this.close(opened);
      at += opened.size;
    }
    if (at === end || !/\S/.test(after) || this.open.length > MOST_OPEN) return this.put(at, end);
    for (const size of end - at === 3 ? [2, 1] : [end - at]) {
      this.open.push({ sign, size, at, node: make(EMPHASIS[sign + size]) });
      at += size;
    }
    return end;
  }

  bracket(at) {
    const size = this.text[at] === "!" ? 2 : 1;
    if (this.open.length > MOST_OPEN || this.text[at + size - 1] !== "[") return null;
    this.open.push({ sign: "[", size, at, node: make("a", size === 2 ? { className: "image" } : {}), links: this.links.length });
    return at + size;
  }

  link(at) {
    const opened = this.open.findLast(({ sign }) => sign === "[");
    if (!opened) return null;
    const found = matchAt(TARGET, this.text, at + 1);
    const address = found && addressOf(found[1] ?? found[2]);
    if (!address) return this.flatten(opened);
    for (const inner of this.links.splice(opened.links)) { move(inner, (child) => inner.before(child)); inner.remove(); }
    this.close(opened);
    this.links.push(asLink(opened.node, address));
    if (!opened.node.firstChild) opened.node.append(address);
    return at + 1 + found[0].length;
  }

  angle(at) {
    const found = matchAt(ANGLE, this.text, at);
    if (found?.[1]) this.top.node.append(make("br"));
    else if (!found || !this.address(found[2], at + 1)) return null;
    return at + found[0].length;
  }

  bare(at) {
    let text = matchAt(BARE, this.text, at)?.[0] ?? "";
    if (/\w/.test(this.text[at - 1] ?? "")) return null;
    let unopened = text.split(")").length - text.split("(").length;
    while (text.endsWith(")") ? unopened-- > 0 : /[.,;:!?'*_~\]]$/.test(text)) text = text.slice(0, -1);
    return this.address(text, at);
  }

  address(text, at) {
    const address = addressOf(text);
    if (!address) return null;
    const node = asLink(make("a"), address);
    this.links.push(node);
    this.top.node.append(node);
    return this.put(at, at + text.length, node);
  }

  close(opened) { // what was opened within it is not closed: it is text
    this.flatten(this.open[this.open.indexOf(opened) + 1]);
    this.open.pop();
    this.top.node.append(opened.node);
  }

  flatten(opened) { // it and what was opened within it is text
    for (let last = opened && this.top; last; last = last === opened ? null : this.top) {
      this.open.pop();
      this.put(last.at, last.at + last.size);
      move(last.node, (child) => this.top.node.append(child));
    }
    return null;
  }
}

// ---- blocks of lines

const BLOCKS = {
  fence: /^[ \t]*(`{3,}|~{3,})[ \t]*([^`]*)$/,
  heading: /^ {0,3}(#{1,6})[ \t]+(\S.*)$/,
  rule: /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/,
  quote: /^ {0,3}> ?/,
  list: /^([ \t]*)([-*+]|\d{1,9}[.)])(?:[ \t]+(?=\S)|[ \t]*$)/,
};
const DELIMITER = /^\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?$/;
const INTERRUPTS = /^[ \t]*(?:[-*+]|1[.)])[ \t]+\S/; // a number at the start of a line need not be a list
const blank = (line) => !line?.text.trim();
const cut = ({ text, at }, from, to) => ({ text: text.slice(from, to), at: at + from });
const indent = ({ text }) => text.length - text.trimStart().length;
const trimmed = (line) => cut(line, indent(line), line.text.trimEnd().length);
const cellsOf = (line) => {
  const cells = [];
  let from = 0;
  for (let at = 0; at <= line.text.length; at += 1) {
    if (at < line.text.length && (line.text[at] !== "|" || line.text[at - 1] === "\\")) continue;
    cells.push(cut(line, from, at));
    from = at + 1;
  }
  return cells.slice(blank(cells[0]) ? 1 : 0, blank(cells.at(-1)) ? -1 : undefined);
};
const isTable = (lines, at) => lines[at].text.includes("|") && DELIMITER.test(lines[at + 1]?.text.trim() ?? "")
  && cellsOf(lines[at]).length === cellsOf(lines[at + 1]).length;
const itemOf = (line) => line && !BLOCKS.rule.test(line.text) && BLOCKS.list.exec(line.text);
const interrupts = (lines, at) => Object.entries(BLOCKS).some(([kind, pattern]) => (kind === "list" ? INTERRUPTS : pattern).test(lines[at].text))
  || isTable(lines, at);

class Blocks {
  constructor(write) { this.write = write; }

  // Append the blocks of lines. Returns the place in the source from which they may change as it grows, and how many nodes stand before it:
  // of the last block that begins before the last two lines, which may still become a part of it.
  fill(parent, lines, depth = 0) {
    let last = null;
    for (let at = 0; at < lines.length;) {
      if (blank(lines[at])) { at += 1; continue; }
      if (!last || at < lines.length - 2) last = { at: lines[at].at, nodes: parent.childNodes.length };
      at = this.block(parent, lines, at, depth);
    }
    return last;
  }

  block(parent, lines, at, depth) {
    for (const [kind, pattern] of Object.entries(BLOCKS)) {
      const found = pattern.exec(lines[at].text);
      if (found && (depth < DEEPEST || !["quote", "list"].includes(kind))) return this[kind](parent, lines, at, found, depth);
    }
    return isTable(lines, at) ? this.table(parent, lines, at) : this.paragraph(parent, lines, at);
  }

  inline(tag, lines, given) {
    const node = make(tag, given);
    new Inline(node, lines, this.write);
    return node;
  }

  fence(parent, lines, at, [, mark, info]) {
    const code = make("code");
    const margin = indent(lines[at]);
    const ends = new RegExp(`^[ \\t]*${mark[0]}{${mark.length},}[ \\t]*$`);
    for (at += 1; at < lines.length && !ends.test(lines[at].text); at += 1) {
      const line = cut(lines[at], Math.min(margin, indent(lines[at])));
      this.write(code, at + 1 < lines.length ? `${line.text}\n` : line.text, line.at);
    }
    const language = info.trim().split(/\s/)[0].slice(0, 30);
    parent.append(make("div", { className: "fence" }, make("div", {}, make("span", { textContent: language }), copyButton(() => code.textContent, code)),
      make("pre", { tabIndex: 0 }, code)));
    return at + 1;
  }

  heading(parent, lines, at, [, marks, text]) {
    const line = lines[at];
    const words = cut(line, line.text.length - text.length, line.text.trimEnd().replace(/[ \t]#+$/, "").length);
    parent.append(this.inline(`h${Math.min(6, marks.length + 2)}`, [words])); // below the headings of the page
    return at + 1;
  }

  rule(parent, lines, at) {
    parent.append(make("hr"));
    return at + 1;
  }

  quote(parent, lines, at, found, depth) {
    const inner = [];
    for (; !blank(lines[at]); at += 1) {
      const mark = BLOCKS.quote.exec(lines[at].text);
      if (!mark && interrupts(lines, at)) break;
      inner.push(cut(lines[at], mark?.[0].length ?? 0));
    }
    const node = make("blockquote");
    this.fill(node, inner, depth + 1);
    parent.append(node);
    return at;
  }

  list(parent, lines, at, [, , first], depth) {
    const ordered = /\d/.test(first);
    const node = make(ordered ? "ol" : "ul", ordered ? { start: parseInt(first, 10) } : {});
    for (let found; (found = itemOf(lines[at])) && found[2].at(-1) === first.at(-1);) {
      const [lead, margin] = found;
      const inner = [cut(lines[at], lead.length)];
      for (at += 1; at < lines.length; at += 1) {
        const outside = !blank(lines[at]) && indent(lines[at]) < margin.length + 2;
        if (outside && (blank(lines[at - 1]) || itemOf(lines[at]) || interrupts(lines, at))) break;
        inner.push(cut(lines[at], Math.min(lead.length, indent(lines[at]))));
      }
      const item = make("li");
      this.fill(item, inner, depth + 1);
      node.append(item);
    }
    parent.append(node);
    return at;
  }

  table(parent, lines, at) {
    const sides = cellsOf(lines[at + 1]).map(({ text }) => (/:\s*$/.test(text) ? (/^\s*:/.test(text) ? "center" : "right") : ""));
    const cell = (tag) => (words, index) => this.inline(tag, [trimmed(words)], { className: sides[index] ?? "" });
    const row = (tag, line) => make("tr", {}, ...cellsOf(line).map(cell(tag)));
    const head = make("thead", {}, row("th", lines[at]));
    const body = make("tbody");
    for (at += 2; !blank(lines[at]) && lines[at].text.includes("|"); at += 1) body.append(row("td", lines[at]));
    parent.append(make("div", { className: "table", tabIndex: 0, role: "region", "aria-label": "Table" }, make("table", {}, head, body)));
    return at;
  }

  paragraph(parent, lines, at) {
    const begin = at;
    do at += 1; while (!blank(lines[at]) && !interrupts(lines, at));
    parent.append(this.inline("p", lines.slice(begin, at).map((line) => cut(line, indent(line)))));
    return at;
  }
}

// A text that grows: each time only its last blocks are made anew. write: as of Inline, by default it appends text.
export class Markdown {
  constructor(box, write = (node, text) => node.append(text)) {
    this.box = box;
    this.blocks = new Blocks(write);
    this.last = { at: 0, nodes: 0 };
  }

  show(source, { anew = false } = {}) {
    if (anew) this.last = { at: 0, nodes: 0 };
    while (this.box.childNodes.length > this.last.nodes) this.box.lastChild.remove();
    let { at } = this.last;
    const lines = source.slice(at).split("\n").map((text) => ({ text, at: (at += text.length + 1) - text.length - 1 }));
    this.last = this.blocks.fill(this.box, lines) ?? this.last;
  }
}
