// One answer: the request that asks for it, and the stream that brings it.
import { ApiError, errorFrom, events } from "./api.js";
import { COMPLETION_TOKENS, requestFields } from "./settings.js";

const ONE_PIECE_MS = 5; // what comes within less came in one piece

// The request for the answer to all messages; if the last is an answer, for what comes after its words.
// chat: the model has a chat template. -> {path, body, problems}
export function requestFor(conversation, chat) {
  const { messages, settings } = conversation;
  const given = chat ? settings : { ...settings, max_tokens: settings.max_tokens || COMPLETION_TOKENS };
  const { fields, problems } = requestFields(given);
  const stream = { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
  if (!chat) {
    const prompt = messages.map(({ content }) => content).join("");
    return { path: "v1/completions", body: { prompt, ...fields, ...stream }, problems };
  }
  const said = messages.map(({ role, content }) => ({ role, content }));
  if (settings.system) said.unshift({ role: "system", content: settings.system });
  const goesOn = messages.at(-1)?.role === "assistant" ? { continue_final_message: true, add_generation_prompt: false } : {};
  return { path: "v1/chat/completions", body: { messages: said, ...goesOn, ...fields, ...stream }, problems };
}

// Reads the answer into `answer` (a message), behind what it has already; onUpdate() after each piece. Sets finish
// ("stopped" when `signal` ended it), error and stats: {ttft, rate, prompt, cached, output}, ms and tokens/s as seen
// here. Never throws.
export async function readAnswer({ path, body }, answer, signal, onUpdate, source = events) {
  const clock = { start: performance.now(), first: 0, last: 0, usage: null, firstTokens: 0 };
  delete answer.error;
  delete answer.finish;
  try {
    for await (const { data } of source(path, { method: "POST", body, signal })) {
      if (data === "[DONE]") break;
      takeChunk(parsed(data), answer, clock);
      onUpdate();
    }
    if (!answer.finish) throw new ApiError(0, "The answer broke off.");
  } catch (error) {
    if (error.name === "AbortError") answer.finish = "stopped";
    else answer.error = plainError(error);
  }
  answer.stats = statsOf(clock);
  onUpdate();
}

function parsed(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new ApiError(null, "a piece of the answer is not JSON");
  }
}

const textOf = (value) => (typeof value === "string" ? value : "");

function takeChunk(chunk, answer, clock) {
  if (chunk?.error) throw errorFrom(chunk.error);
  if (chunk?.usage) clock.usage = chunk.usage;
  const choice = chunk?.choices?.[0];
  if (!choice) return;
  const text = textOf(choice.text ?? choice.delta?.content);
  const reasoning = textOf(choice.delta?.reasoning_content);
  if (text) answer.content += text;
  if (reasoning) answer.reasoning = (answer.reasoning ?? "") + reasoning;
  if (text || reasoning) tick(clock);
  if (textOf(choice.finish_reason)) answer.finish = choice.finish_reason;
}

function tick(clock) {
  clock.last = performance.now();
  if (clock.first) return;
  clock.first = clock.last;
  clock.firstTokens = clock.usage?.completion_tokens ?? 1;
}

function statsOf(clock) {
  const { start, first, usage } = clock;
  if (!first) return {};
  const stats = { ttft: first - start };
  if (!usage) return stats;
  stats.rate = rateOf(clock);
  stats.prompt = usage.prompt_tokens;
  stats.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  stats.output = usage.completion_tokens;
  return Object.fromEntries(Object.entries(stats).filter(([, value]) => Number.isFinite(value)));
}

// Of the tokens after the first, or of all since the request where they came in one piece.
function rateOf({ start, first, last, usage, firstTokens }) {
  const onePiece = last - first < ONE_PIECE_MS;
  const tokens = usage.completion_tokens - (onePiece ? 0 : firstTokens);
  return 1000 * tokens / (last - (onePiece ? start : first));
}

function plainError(error) {
  const { status = 0, message, param = "", code = "", retryAfter = null } = error;
  return { status, message, param, code, retryAfter };
}
