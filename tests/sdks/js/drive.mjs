// Runs scenarios of one client: a line {"scenario", "options"} in, a line {"value"} or {"error"} out.
import { createInterface } from "node:readline";

const scenarios = await import(`./${process.argv[2]}.mjs`);
for await (const line of createInterface({ input: process.stdin })) {
  const { scenario, options } = JSON.parse(line);
  let answer;
  try {
    answer = { value: await scenarios[scenario](options) };
  } catch (error) {
    answer = { error: String(error?.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
