// The list of stored conversations, and what may be done with all of them.
import { $, button, make } from "./parts.js";
import * as stored from "./store.js";

let again = () => {};

// Show them. current: the id of the one that is open; open and remove: what a click does.
export const listChats = (current, open, remove) => {
  again = () => listChats(current, open, remove);
  const all = stored.chats();
  $("chat-list").replaceChildren(...all.map((chat) => {
    const title = chat.title || "Without a title";
    const opens = button(title, () => { open(chat); $("chats").hidePopover?.(); });
    opens.title = new Date(chat.at).toLocaleString();
    if (chat.id === current) opens.setAttribute("aria-current", "true");
    const removes = button("×", () => remove(chat.id));
    removes.ariaLabel = `Delete ${title}`;
    return make("li", {}, opens, removes);
  }));
  const used = Math.ceil(100 * stored.share());
  $("chats-size").textContent = all.length ? `${all.length} stored, ${used} % of the room. The oldest go first.` : "Nothing is stored.";
  $("export").disabled = $("clear").disabled = !all.length;
  $("keep").checked = stored.isKept();
};

$("keep").onchange = () => stored.keep($("keep").checked);
$("export").onclick = stored.exportAll;
$("clear").onclick = () => {
  if (!confirm("Delete all conversations that are stored in this browser?")) return;
  stored.clear();
  again();
};
