// Runs the scripts of the chat page without a browser, on as much of a document as they need.
// Argument: the folder of the scripts. Input: JSON, what to do with each of a list of texts. Output: JSON.
import { readFileSync } from "node:fs";

class Node { // with a list of children that is linked, as browsers have it: moving many of them is quick
  parentNode = null;
  firstChild = null;
  lastChild = null;
  next = null;
  previous = null;
  count = 0;
  get childNodes() {
    const first = this.firstChild;
    return { length: this.count, *[Symbol.iterator]() { for (let one = first; one; one = one.next) yield one; } };
  }
  remove() {
    const parent = this.parentNode;
    if (!parent) return;
    if (this.previous) this.previous.next = this.next;
    else parent.firstChild = this.next;
    if (this.next) this.next.previous = this.previous;
    else parent.lastChild = this.previous;
    parent.count -= 1;
    this.parentNode = this.next = this.previous = null;
  }
  insert(node, next) {
    node.remove();
    const previous = next ? next.previous : this.lastChild;
    Object.assign(node, { parentNode: this, next, previous });
    if (previous) previous.next = node;
    else this.firstChild = node;
    if (next) next.previous = node;
    else this.lastChild = node;
    this.count += 1;
  }
  append(...given) { for (const one of given) this.insert(typeof one === "string" ? new Text(one) : one, null); }
  before(node) { this.parentNode.insert(node, this); }
  get textContent() { return [...this.childNodes].map((one) => one.textContent).join(""); }
  set textContent(text) { this.append(text); }
}
class Text extends Node {
  constructor(text) { super(); this.data = text; }
  get textContent() { return this.data; }
  set textContent(text) { this.data = text; }
}
const PROPERTIES = ["className", "href", "title", "target", "rel", "tabIndex", "start", "type", "onclick"];
class Element extends Node {
  constructor(tag) {
    super();
    this.tag = tag;
    this.given = {};
    for (const name of PROPERTIES) this[name] = undefined;
  }
  setAttribute(name, value) { this.given[name] = value; }
}
globalThis.document = { createElement: (tag) => new Element(tag) };

// An element as [tag, attributes, ...children]; texts beside each other are one.
const tree = (node) => {
  const given = { ...node.given };
  for (const name of PROPERTIES) if (!["onclick", "tabIndex"].includes(name) && node[name]) given[name] = node[name];
  const children = [];
  for (const one of node.childNodes) {
    if (one.tag) children.push(tree(one));
    else if (typeof children.at(-1) === "string") children[children.length - 1] += one.data;
    else if (one.data) children.push(one.data);
  }
  return [node.tag, given, ...children];
};

const { Markdown } = await import(`${process.argv[2]}/render.js`);
const { cosine } = await import(`${process.argv[2]}/request.js`);
const tasks = {
  // One text by its parts: as it grew, as it is at its end, and whether each text that was written stands where the source has it.
  render(parts) {
    const box = new Element("div"), whole = new Element("div");
    let source = "", places = true;
    const markdown = new Markdown(box, (node, text, at) => {
      places &&= source.slice(at, at + text.length).replace(/\n$/, "") === text.replace(/\n$/, "");
      node.append(text);
    });
    for (const part of parts) markdown.show(source += part);
    const grown = tree(box).slice(2);
    markdown.show(source, { anew: true });
    new Markdown(whole).show(source);
    return { grown, end: tree(box).slice(2), whole: tree(whole).slice(2), places };
  },
  // How many blocks each of the parts made, and milliseconds of all.
  cost(parts) {
    const box = new Element("div");
    const markdown = new Markdown(box);
    let source = "", made = [];
    document.createElement = (tag) => { made[made.length - 1] += tag === "p"; return new Element(tag); };
    const begun = performance.now();
    for (const part of parts) { made.push(0); markdown.show(source += part); }
    document.createElement = (tag) => new Element(tag);
    return { made, ms: performance.now() - begun };
  },
  cosine: ([one, other]) => cosine(one, other),
};
const asked = JSON.parse(readFileSync(0, "utf-8"));
process.stdout.write(JSON.stringify(asked.map(([task, given]) => tasks[task](given))));
