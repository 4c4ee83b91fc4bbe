// OpenAI's Agents SDK with its defaults: settings come from the environment alone.
import { Agent, Runner, tool } from "@openai/agents";
import { degreesIn, description, model, place, question } from "./weather.mjs";

const runner = new Runner({ tracingDisabled: true });
const getWeather = tool({ name: "get_weather", description, parameters: place, execute: degreesIn });

async function run(agent, input, streamed) {
  const result = await runner.run(agent, input, { stream: streamed });
  const kinds = [];
  if (streamed) {
    for await (const event of result) {
      if (event.type === "raw_model_stream_event") kinds.push(event.data.type);
    }
    await result.completed;
  }
  const reasoning = result.newItems.filter((item) => item.type === "reasoning_item");
  return {
    output: result.finalOutput,
    thoughts: reasoning.flatMap(({ rawItem }) => rawItem.providerData.content.map((part) => part.text)),
    used: result.state.usage.requestUsageEntries.map((entry) => entry.inputTokens),
    ended: kinds.filter((kind) => kind === "response_done").length,
  };
}

export function loop({ streamed }) {
  const agent = new Agent({ name: "weather", instructions: "Be brief.", model, tools: [getWeather] });
  return run(agent, question, streamed);
}

export async function typed({ streamed }) {
  const agent = new Agent({ name: "places", model, outputType: place });
  return (await run(agent, "Where?", streamed)).output;
}
