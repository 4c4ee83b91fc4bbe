// What the pages of the gateway are made of.

export const $ = (id) => document.getElementById(id);
export const say = (text) => { $("status").textContent = text; };
export const warn = (text) => { $("alert").textContent = text; };

// An element: properties where it has them, else attributes; children are elements or text, never markup.
export const make = (tag, given = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) name in node ? (node[name] = value) : node.setAttribute(name, value);
  node.append(...children);
  return node;
};
export const button = (text, onclick) => make("button", { type: "button", textContent: text, onclick });

// A button that copies a text. Browsers let only pages of HTTPS and of this machine do so; elsewhere the text is selected in its node.
export const copyButton = (text, node) => {
  const made = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text());
      made.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(node);
      made.textContent = "Selected";
    }
    setTimeout(() => { made.textContent = "Copy"; }, 2000);
  });
  return made;
};

// The index of the last entry of a list that begins at a place or before it; -1 where none does. The list is in the order of `at`.
export const lastBefore = (list, at) => {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].at <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
};

// The key, for this tab alone. Storage may be forbidden to a page, which then keeps it by itself.
const KEY = "gateway-key";
export const store = {
  get: () => { try { return sessionStorage.getItem(KEY) ?? ""; } catch { return ""; } },
  set: (value) => { try { value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY); } catch { /* forbidden */ } },
};
