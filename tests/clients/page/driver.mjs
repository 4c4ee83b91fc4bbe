// Does in Chromium what lines of JSON on stdin say, one after the other, and answers each with a line.
// Arguments: the folder node_modules, the browser. Methods are those of Playwright's Page and of what hangs on it.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const PATIENCE_MS = 20000;
const [modules, executablePath] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf-8");
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
let context, page, problems;

const commands = {
  async open(url, options) {
    await context?.close();
    context = await browser.newContext(options);
    context.setDefaultTimeout(PATIENCE_MS);
    page = await context.newPage();
    problems = [];
    page.on("console", (said) => { if (["error", "warning"].includes(said.type())) problems.push(said.text()); });
    page.on("dialog", (asked) => asked.accept());
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("request", (request) => { if (!request.url().startsWith(new URL(url).origin)) problems.push(`asked ${request.url()}`); });
    await page.goto(url);
  },
  async until(script) { // Playwright's own way of waiting evaluates text in the page, which the page's policy forbids
    const end = Date.now() + PATIENCE_MS;
    while (!await page.evaluate(script)) {
      if (Date.now() > end) throw new Error(`never: ${script}\n${await page.evaluate("document.body.innerText")}`);
      await new Promise((resolve) => { setTimeout(resolve, 20); });
    }
  },
  problems: () => problems.splice(0),
  async axe() {
    await page.evaluate(axe);
    const { violations } = await page.evaluate("axe.run()");
    return violations.map(({ id, impact, nodes }) => [impact, id, nodes.map((node) => node.html)]);
  },
  async call(method, ...given) {
    const path = method.split(".");
    const name = path.pop();
    const owner = path.reduce((found, step) => found[step], page);
    const value = await owner[name](...given);
    return ["object", "function"].includes(typeof value) && !Array.isArray(value) ? null : value;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...given] = JSON.parse(line);
  const answer = {};
  try { answer.value = await commands[command](...given) ?? null; } catch (error) { answer.error = String(error); }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
