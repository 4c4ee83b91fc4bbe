// Two texts compared by the vectors that a model makes of them.
import { $, make, say, warn } from "./parts.js";
import { ask } from "./gateway.js";
import { cosine } from "./request.js";

const embed = async (text, kind) => {
  const body = { model: $("model").value, input: text, encoding_format: "float" };
  if (kind) body.input_type = kind;
  return (await ask("v1/embeddings", body)).json();
};

const compare = async () => {
  const sides = ["one", "other"].map((name) => [$(`text-${name}`).value, $(`kind-${name}`).value.trim()]);
  warn("");
  say("Embedding both texts.");
  try {
    const found = await Promise.all(sides.map(([text, kind]) => embed(text, kind)));
    const [one, other] = found.map(({ data }) => data[0].embedding);
    const likeness = cosine(one, other);
    const tokens = found.reduce((sum, { usage }) => sum + usage.total_tokens, 0);
    say(`The cosine is ${likeness.toFixed(4)}, of ${one.length} dimensions, for ${tokens} tokens.`);
    const meter = make("meter", { min: -1, max: 1, value: likeness, ariaHidden: "true" });
    $("compared").prepend(make("tr", {}, make("td", {}, make("strong", { textContent: likeness.toFixed(4) }), meter),
      ...sides.map(([text, kind]) => make("td", { textContent: kind ? `${kind}: ${text}` : text }))));
    $("compared").closest("table").hidden = false;
  } catch (problem) {
    say("");
    warn(problem.message);
  }
};

$("compare").onsubmit = (event) => { event.preventDefault(); compare(); };
$("compare-example").onclick = () => {
  $("text-one").value = "Which port does the server listen on?";
  $("text-other").value = "Requests are served at port 9000.";
};
