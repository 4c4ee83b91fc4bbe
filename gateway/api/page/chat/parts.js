// What the pages of the gateway are made of.

// An element: properties where it has them, else attributes; children are elements or text, never markup.
export const make = (tag, given = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) name in node ? (node[name] = value) : node.setAttribute(name, value);
  node.append(...children);
  return node;
};
export const button = (text, onclick) => make("button", { type: "button", textContent: text, onclick });

// The key, for this tab alone. Storage may be forbidden to a page, which then keeps it by itself.
const KEY = "gateway-key";
export const store = {
  get: () => { try { return sessionStorage.getItem(KEY) ?? ""; } catch { return ""; } },
  set: (value) => { try { value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY); } catch { /* forbidden */ } },
};
