"""OpenAI's API: schemas, routes and bodies."""
