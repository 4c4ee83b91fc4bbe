// What is sent and what comes back, without a page around it.

// A problem with a sentence for the user. status: of the response, 0 without one; param: the parameter at fault.
export class Problem extends Error {
  constructor(message, status = 0, param = null) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

// The value of a field: JSON where it is JSON, else its text; undefined where it is empty.
export const valueOf = (text) => {
  if (!text.trim()) return undefined;
  let value;
  try { value = JSON.parse(text); } catch { return text; }
  if (Number.isInteger(value) && !Number.isSafeInteger(value))
    throw new Problem(`A browser cannot send the number ${text.trim()} exactly: the largest exact integer is 2^53.`);
  return value;
};

// The sentence of an error response: the gateway's message where it has one.
export const problemOf = async (answer) => {
  let error;
  try { ({ error } = await answer.json()); } catch { /* a proxy's page, or nothing */ }
  return new Problem(error?.message ?? `The response has status ${answer.status} and no message.`, answer.status, error?.param);
};

// The data of each event of a stream, as text.
export async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// A token as a reader sees it: bytes that are not a complete character in angle brackets, controls as signs.
export const shown = (entry) => {
  const bytes = entry.token.startsWith("bytes:") && entry.bytes;
  if (bytes) return `⟨${bytes.map((one) => one.toString(16).padStart(2, "0")).join(" ")}⟩`;
  return entry.token.replace(/\r/g, "␍").replace(/\n/g, "↵\n").replace(/\t/g, "⇥\t")
    .replace(/[\0-\x08\x0b-\x1f]/g, (one) => String.fromCharCode(0x2400 + one.charCodeAt(0)));
};

export const percent = (logprob) => {
  const share = 100 * Math.exp(logprob);
  return share >= 0.1 ? `${share.toFixed(1)} %` : share > 0 ? `${share.toPrecision(1)} %` : "0 %";
};

// Usage and times in one line. times: seconds of the first and the last piece, and of the end, since the request.
export const figures = (usage, times, finish) => {
  const said = [];
  if (usage) {
    const details = usage.completion_tokens_details ?? {};
    const cached = usage.prompt_tokens_details?.cached_tokens;
    said.push(`${usage.prompt_tokens} prompt tokens${cached ? `, ${cached} of them cached` : ""}`);
    said.push(`${usage.completion_tokens} completion tokens${details.estimated ? " (estimated)" : ""}`
      + (details.reasoning_tokens ? `, ${details.reasoning_tokens} of them reasoning` : ""));
  }
  if (times.first !== undefined) {
    said.push(`first token after ${times.first.toFixed(2)} s`);
    const span = times.last - times.first;
    if (usage?.completion_tokens > 1 && span >= 0.01) // shorter spans measure the browser, not the engine
      said.push(`${((usage.completion_tokens - 1) / span).toFixed(1)} tokens/s`);
  }
  said.push(`${times.end.toFixed(2)} s total`);
  if (finish) said.push(`ended by: ${finish}`);
  return said.join(" · ");
};

const python = (value, indent) => {
  const inner = `${indent}    `;
  const block = (open, parts, close) => parts.length ? `${open}\n${parts.map((one) => inner + one + ",\n").join("")}${indent}${close}` : open + close;
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return block("[", value.map((one) => python(one, inner)), "]");
  if (typeof value === "object") return block("{", Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${python(one, inner)}`), "}");
  return JSON.stringify(value);
};

// The request as a program. Keys are never written out: programs take them from GATEWAY_API_KEY.
export const programs = {
  curl: (base, body, keyed) => [
    `curl -sS${body.stream ? "N" : ""} '${base}/chat/completions' \\`,
    ...(keyed ? ['  -H "Authorization: Bearer $GATEWAY_API_KEY" \\'] : []),
    "  -H 'Content-Type: application/json' \\",
    `  -d '${JSON.stringify(body, null, 2).replaceAll("'", "'\\''")}'`,
  ].join("\n"),
  Python: (base, body, keyed) => {
    const { model, messages, stream, ...more } = body;
    const show = stream
      ? 'for chunk in answer:\n    for choice in chunk.choices:\n        print(choice.delta.content or "", end="", flush=True)'
      : "print(answer.choices[0].message.content)";
    return `${keyed ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(base)}, api_key=${keyed ? 'os.environ["GATEWAY_API_KEY"]' : '"unused"'})
answer = client.chat.completions.create(
    model=${JSON.stringify(model)},
    messages=${python(messages, "    ")},
    stream=${stream ? "True" : "False"},
    extra_body=${python(more, "    ")},
)
${show}
`;
  },
  JS: (base, body, keyed) => `const answer = await fetch(${JSON.stringify(`${base}/chat/completions`)}, {
  method: "POST",
  headers: {
    "Content-Type": "application/json",
${keyed ? "    Authorization: `Bearer ${process.env.GATEWAY_API_KEY}`,\n" : ""}  },
  body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll("\n", "\n  ")}),
});
for await (const text of answer.body.pipeThrough(new TextDecoderStream())) console.log(text);
`,
};

export const EXAMPLES = {
  tools: [{ type: "function", function: {
    name: "get_weather", description: "The weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string", maxLength: 30 } }, required: ["city"], additionalProperties: false },
  } }],
  response_format: {
    type: "object", properties: { city: { type: "string", maxLength: 30 }, population: { type: "integer" } },
    required: ["city", "population"], additionalProperties: false,
  },
};

// The cosine of the angle between two vectors: 1 where they point the same way.
export const cosine = (one, other) => {
  const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
  return dot(one, other) / Math.sqrt(dot(one, one) * dot(other, other));
};
