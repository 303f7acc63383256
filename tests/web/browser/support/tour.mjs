// Goes through all that the page can show, with content in it.

const CONTENT = `Here is what it does:

# A table of contents

1. **First** the *prompt*, with a [link](https://example.com/)
2. then \`code\`

| step | time |
|---|---:|
| one | 1.5 ms |

> A word of caution, and a line that is wide: ${"wide ".repeat(40)}

\`\`\`python
def wide(): return "${"x".repeat(120)}"
\`\`\``;

const CHATS = JSON.stringify({
  format: "gapless-chats", version: 1, conversations: [{
    title: "What does it do?",
    messages: [{ role: "user", content: "What does it do?" },
      { role: "assistant", content: CONTENT, reasoning: "They want an overview.", finish: "length",
        stats: { ttft: 31, rate: 140.2, prompt: 40, cached: 16, output: 220 } }],
  }],
});

export async function importChat(page) {
  await page.getByLabel("File with chats").setInputFiles({ name: "chats.json", mimeType: "application/json", buffer: Buffer.from(CHATS) });
  await page.getByRole("article", { name: "Answer" }).getByText("A word of caution").waitFor();
}

export async function showView(page, name) {
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name }).click();
  await page.getByRole("region", { name, exact: true }).getByRole("heading").first().waitFor();
}

// Calls look(what) before each of: the chat, empty and full, its settings, the server's dialog, the live view, the trace view.
export async function showEachView(page, look) {
  await page.getByRole("heading", { name: "What shall it answer?" }).waitFor();
  await page.getByRole("searchbox", { name: "Search chats" }).waitFor({ state: "hidden" }); // until there are chats to search
  await look("an empty chat");
  await importChat(page);
  await look("a chat");
  await page.getByRole("button", { name: "Settings of this chat" }).click();
  await page.getByRole("textbox", { name: "System prompt" }).waitFor();
  await look("the settings of a chat");
  await page.getByRole("button", { name: "Close the settings" }).click();
  await page.getByRole("button", { name: ", settings" }).click();
  await page.getByRole("dialog", { name: "Server" }).waitFor();
  await look("the server's dialog");
  await page.keyboard.press("Escape");
  await showView(page, "Live");
  await page.getByText(/\d+ running/).waitFor();
  await look("the live view");
  await showView(page, "Trace");
  await look("the trace view");
}
