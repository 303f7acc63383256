// A proxy as people put before a server: it serves it under a path of its own, and passes streams on as they come.
import { createServer, request } from "node:http";

export async function startProxy(after, target, prefix) {
  const proxy = createServer((from, to) => {
    if (!from.url.startsWith(`${prefix}/`)) {
      to.writeHead(404).end();
      return;
    }
    const onward = request(target + from.url.slice(prefix.length), { method: from.method, headers: from.headers }, (answer) => {
      to.writeHead(answer.statusCode, answer.headers);
      answer.pipe(to);
    });
    onward.on("error", () => to.destroy());
    to.on("close", () => onward.destroy());
    from.pipe(onward);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  after(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  return { url: `http://127.0.0.1:${proxy.address().port}` };
}
