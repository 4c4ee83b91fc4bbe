// Anthropic's SDK: messages, their streams, its runner of tools, counting, models.
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { degreesIn, description, jsonSchema, model, place, question, url } from "./weather.mjs";

const client = new Anthropic({ baseURL: url, apiKey: "unused", maxRetries: 0 });
const tools = [{ name: "get_weather", description, input_schema: jsonSchema }];

function told(answers) {
  const blocks = answers.map((message) => message.content);
  return {
    output: blocks.at(-1).filter((block) => block.type === "text").map((block) => block.text).join(""),
    thoughts: blocks.flat().filter((block) => block.type === "thinking").map((block) => block.thinking),
    kinds: blocks.map((content) => content.map((block) => block.type)),
    reasons: answers.map((message) => message.stop_reason),
    used: answers.map((message) => message.usage.input_tokens + message.usage.cache_read_input_tokens),
  };
}

export async function loop({ streamed }) {
  const messages = [{ role: "user", content: question }];
  const answers = [];
  while (true) {
    const body = { model, max_tokens: 1000, messages, tools };
    const answer = streamed ? await client.messages.stream(body).finalMessage() : await client.messages.create(body);
    answers.push(answer);
    messages.push({ role: "assistant", content: answer.content });
    const calls = answer.content.filter((block) => block.type === "tool_use");
    if (calls.length === 0) return told(answers);
    const results = calls.map((call) => ({
      type: "tool_result",
      tool_use_id: call.id,
      content: degreesIn(call.input),
    }));
    messages.push({ role: "user", content: results });
  }
}

export async function runner({ streamed }) {
  const getWeather = betaZodTool({ name: "get_weather", description, inputSchema: place, run: degreesIn });
  const answers = [];
  const run = client.beta.messages.toolRunner({
    model,
    max_tokens: 1000,
    messages: [{ role: "user", content: question }],
    tools: [getWeather],
    stream: streamed,
  });
  for await (const answer of run) answers.push(streamed ? await answer.finalMessage() : answer);
  return told(answers);
}

export async function typed({ streamed }) {
  const body = {
    model,
    max_tokens: 50,
    messages: [{ role: "user", content: "Where?" }],
    output_config: { format: zodOutputFormat(place) },
  };
  const message = streamed ? await client.messages.stream(body).finalMessage() : await client.messages.parse(body);
  return message.parsed_output;
}

export async function counted() {
  const body = { model, messages: [{ role: "user", content: question }], tools };
  const { input_tokens: tokens } = await client.messages.countTokens(body);
  const message = await client.messages.create({ ...body, max_tokens: 9 });
  return { tokens, used: message.usage.input_tokens };
}

export async function models() {
  const ids = [];
  for await (const each of client.models.list()) ids.push(each.id);
  return ids;
}
