// What all loops of tools share; see conftest.py.
import { z } from "zod";

export const url = process.env.GATEWAY_URL;
export const model = process.env.GATEWAY_MODEL;
export const question = process.env.QUESTION;
export const description = "Temperature in a city.";
export const place = z.object({ city: z.string() });
export const jsonSchema = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

const degrees = JSON.parse(process.env.DEGREES);

export function degreesIn({ city }) {
  return `${degrees[city]} degrees`;
}
