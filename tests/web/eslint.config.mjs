// What ./dev lint asks of the page and of its tests. GAPLESS_WEB_NODE is the folder with the packages of package.json.
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.GAPLESS_WEB_NODE, "package.json"));
const js = require("@eslint/js");
const globals = require("globals");

const rules = {
  ...js.configs.recommended.rules,
  "default-case-last": "error",
  eqeqeq: ["error", "always", { null: "ignore" }],
  "max-lines": ["error", 400],
  "no-alert": "error",
  "no-else-return": "error",
  "no-eval": "error",
  "no-implicit-globals": "error",
  "no-implied-eval": "error",
  "no-new-func": "error",
  "no-shadow": "error",
  "no-throw-literal": "error",
  "no-unused-expressions": "error",
  "no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
  "no-use-before-define": ["error", { functions: false, classes: false, variables: false }],
  "no-var": "error",
  "object-shorthand": "error",
  "prefer-const": "error",
};

// Text of models and of people is never parsed as HTML.
const markup = ["innerHTML", "outerHTML", "insertAdjacentHTML"].map((property) => ({ property, message: "build elements instead (dom.js)" }));

export default [
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  { files: ["src/server/web/**/*.js"], languageOptions: { sourceType: "module", globals: globals.browser }, rules: { ...rules, "no-console": "error", "no-restricted-properties": ["error", ...markup] } },
  // A test's page.evaluate() runs in the browser.
  { files: ["tests/web/**/*.mjs"], languageOptions: { globals: { ...globals.node, ...globals.browser } }, rules: { ...rules, "max-lines": ["error", 600] } },
];
