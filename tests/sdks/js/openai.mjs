// OpenAI's SDK: its helpers of Responses.
import OpenAI from "openai";
import { zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { degreesIn, description, model, place, question, url } from "./weather.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0 });
const tools = [zodResponsesFunction({ name: "get_weather", description, parameters: place })];

async function asked(body, streamed) {
  if (!streamed) return client.responses.parse(body);
  const stream = client.responses.stream(body);
  let text = "";
  stream.on("response.output_text.delta", (event) => {
    text += event.delta;
  });
  const response = await stream.finalResponse();
  if (text !== response.output_text) throw new Error(`deltas say ${text}, the response ${response.output_text}`);
  return response;
}

export async function loop({ streamed }) {
  const input = [{ role: "user", content: question }];
  const responses = [];
  while (true) {
    const response = await asked({ model, input, tools }, streamed);
    responses.push(response);
    const calls = response.output.filter((item) => item.type === "function_call");
    if (calls.length === 0) break;
    for (const { parsed_arguments: _, ...item } of response.output) input.push(item);
    for (const call of calls) {
      const output = degreesIn(call.parsed_arguments);
      input.push({ type: "function_call_output", call_id: call.call_id, output });
    }
  }
  const reasoning = responses.flatMap(({ output }) => output).filter((item) => item.type === "reasoning");
  return {
    output: responses.at(-1).output_text,
    thoughts: reasoning.map((item) => item.content.map((part) => part.text).join("")),
    statuses: responses.map((response) => response.status),
    used: responses.map((response) => response.usage.input_tokens),
  };
}

export async function typed({ streamed }) {
  const text = { format: zodTextFormat(place, "place") };
  return (await asked({ model, input: "Where?", text }, streamed)).output_parsed;
}
