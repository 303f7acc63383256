// What a load asks of the server and of this browser, before anything is made: what cannot fit is refused in words. Pure.
import { countText, plural } from "./format.js";

export const CARRIERS = 3;       // requests that carry all streams; a browser opens six connections to a server at most
const MOST_BODY = 32 * 1024 ** 2; // bytes of a request, the server's limit
const TOKEN_BYTES = 8;           // at most, of a token's id and its comma

// How many of the streams each request carries.
export function sharesOf(streams) {
  const carriers = Math.min(CARRIERS, streams);
  return Array.from({ length: carriers }, (_, i) => Math.floor(streams / carriers) + (i < streams % carriers ? 1 : 0));
}

// Why it cannot be; "" if it can. context: tokens of a prompt with its answer, null where it is not known.
export function problemOf({ streams, promptLength, answerLength }, context) {
  if (context !== null && promptLength + answerLength > context) {
    return `A prompt of ${plural(promptLength, "token")} and an answer of ${countText(answerLength)} do not fit: the model's context has `
      + `${countText(context)}.`;
  }
  const most = Math.floor(MOST_BODY / TOKEN_BYTES / sharesOf(streams)[0]);
  if (promptLength <= most) return "";
  return `${plural(streams, "prompt")} of ${plural(promptLength, "token")} are too much for the requests that carry them, each of `
    + `${countText(MOST_BODY / 1024 ** 2)} MiB at most. With ${plural(streams, "stream")} a prompt has at most ${plural(most, "token")}.`;
}
