// The AI SDK with its default provider of OpenAI.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, Output, streamText, tool } from "ai";
import { degreesIn, description, model, place, question, url } from "./weather.mjs";

const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "unused" });
const tools = { get_weather: tool({ description, inputSchema: place, execute: degreesIn }) };
const common = { model: openai(model), maxRetries: 0 };

async function told(result) {
  const steps = await result.steps;
  return {
    output: await result.text,
    thoughts: steps.flatMap((step) => step.reasoning.map((part) => part.text)),
    calls: steps.map((step) => step.toolCalls.length),
    reasons: steps.map((step) => step.finishReason),
    used: steps.map((step) => step.usage.inputTokens),
  };
}

export async function loop({ streamed, store, include }) {
  const providerOptions = { openai: { store, include } };
  const asked = { ...common, tools, prompt: question, stopWhen: isStepCount(5), providerOptions };
  if (!streamed) return told(await generateText(asked));
  const errors = [];
  const result = streamText({ ...asked, onError: ({ error }) => errors.push(String(error)) });
  await result.consumeStream();
  if (errors.length > 0) throw new Error(errors.join());
  return told(result);
}

export async function typed({ streamed }) {
  const asked = { ...common, prompt: "Where?", output: Output.object({ schema: place }) };
  if (!streamed) return (await generateText(asked)).output;
  const result = streamText(asked);
  await result.consumeStream();
  return result.output;
}
