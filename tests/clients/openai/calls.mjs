// OpenAI's own JavaScript client against a server: node calls.mjs FOLDER_WITH_NODE_MODULES BASE_URL. Prints one JSON object for
// tests/api/test_real_clients.py to judge.
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, baseURL] = process.argv.slice(2);
const { OpenAI, BadRequestError } = createRequire(join(folder, "package.json"))("openai");
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });

const model = (await client.models.list()).data[0].id;
const chat = { model, messages: [{ role: "user", content: "Name a river." }], max_tokens: 16, temperature: 0 };
const whole = await client.chat.completions.create({ ...chat, logprobs: true });

let text = "";
let usage = null;
for await (const chunk of await client.chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
const helper = await client.chat.completions.stream(chat).finalContent();
const completion = await client.completions.create({ model, prompt: "A river", max_tokens: 4, temperature: 0, n: 2 });

const tool = (name, field) => ({
  type: "function",
  function: { name, parameters: { type: "object", properties: { [field]: { type: "string", maxLength: 12 } }, required: [field] } },
});
const tools = { ...chat, max_tokens: 100, tools: [tool("weather", "city"), tool("stock", "symbol")], tool_choice: "required" };
const called = (await client.chat.completions.create(tools)).choices[0];
const streamed_call = (await client.chat.completions.stream(tools).finalChatCompletion()).choices[0];
const calls = (choice) => choice.message.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]);

let refused = null;
try {
  await client.chat.completions.create({ ...chat, temperature: 9 });
} catch (error) {
  refused = { bad_request: error instanceof BadRequestError, status: error.status, param: error.param };
}

const aborted = await client.chat.completions.create({ ...chat, max_tokens: 4000, ignore_eos: true, stream: true });
for await (const _ of aborted) {
  aborted.controller.abort();
}

console.log(JSON.stringify({
  model, whole: whole.choices[0].message.content, logprobs: whole.choices[0].logprobs.content.length, whole_usage: whole.usage,
  calls: calls(called), streamed_calls: calls(streamed_call), finish: [called.finish_reason, streamed_call.finish_reason], streamed: text, helper, usage, completions: completion.choices.map((choice) => choice.text), refused,
}));
