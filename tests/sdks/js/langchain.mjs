// LangChain.js with useResponsesApi.
import { HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { degreesIn, description, model, place, question, url } from "./weather.mjs";

const llm = new ChatOpenAI({
  model,
  apiKey: "unused",
  maxRetries: 0,
  useResponsesApi: true,
  configuration: { baseURL: `${url}/v1` },
});
const getWeather = tool(degreesIn, { name: "get_weather", description, schema: place });

async function whole(asked, messages, streamed) {
  if (!streamed) return asked.invoke(messages);
  let answer;
  for await (const chunk of await asked.stream(messages)) {
    answer = answer === undefined ? chunk : answer.concat(chunk);
  }
  return answer;
}

export async function loop({ streamed }) {
  const asked = llm.bindTools([getWeather]);
  const messages = [new HumanMessage(question)];
  const calls = [];
  const thoughts = [];
  const used = [];
  let answer;
  do {
    answer = await whole(asked, messages, streamed);
    messages.push(answer);
    calls.push(answer.tool_calls.length);
    used.push(answer.usage_metadata.input_tokens);
    for (const part of answer.additional_kwargs.reasoning?.content ?? []) thoughts.push(part.text);
    for (const call of answer.tool_calls) messages.push(await getWeather.invoke(call));
  } while (answer.tool_calls.length > 0);
  return { output: answer.text, calls, thoughts, used };
}

export async function typed() {
  return llm.withStructuredOutput(place, { name: "place" }).invoke("Where?");
}
