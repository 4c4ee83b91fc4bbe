// Conversations, stored in this browser alone, newest first. The key is never among them.
import { make } from "./parts.js";

const PLACE = "gateway-chats", OFF = "gateway-chats-off";
const MOST = 2_000_000; // characters of all together; browsers store some five million for an origin

export const isKept = () => { try { return !localStorage.getItem(OFF); } catch { return false; } };
export const keep = (on) => { try { on ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "yes"); } catch { /* forbidden */ } };

export const chats = () => {
  try { return JSON.parse(localStorage.getItem(PLACE)).filter((chat) => chat.id && Array.isArray(chat.entries)); } catch { return []; }
};
export const share = () => { try { return (localStorage.getItem(PLACE) ?? "").length / MOST; } catch { return 0; } };
export const clear = () => { try { localStorage.removeItem(PLACE); } catch { /* forbidden */ } };

// Replace what is stored; the oldest go where there is no room. Returns how many went, or -1 where not even the newest can be stored.
const replace = (all) => {
  if (!all.length) clear();
  for (let kept = all.length; kept; kept -= 1) {
    const text = JSON.stringify(all.slice(0, kept));
    if (text.length > MOST) continue;
    try { localStorage.setItem(PLACE, text); return all.length - kept; } catch { /* no room, or forbidden */ }
  }
  return -1;
};

export const remove = (id) => replace(chats().filter((chat) => chat.id !== id));
// Store a conversation in place of what it was. Returns as replace.
export const save = (chat) => (isKept() ? replace([chat, ...chats().filter(({ id }) => id !== chat.id)]) : 0);

export const exportAll = () => {
  const href = URL.createObjectURL(new Blob([JSON.stringify(chats(), null, 2)], { type: "application/json" }));
  make("a", { href, download: "conversations.json" }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
};
