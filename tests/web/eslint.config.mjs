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
  "no-restricted-properties": [
    "error",
    { property: "innerHTML", message: "text of models and of people is never parsed as HTML" },
    { property: "outerHTML", message: "text of models and of people is never parsed as HTML" },
    { property: "insertAdjacentHTML", message: "text of models and of people is never parsed as HTML" },
  ],
  "no-shadow": "error",
  "no-throw-literal": "error",
  "no-unused-expressions": "error",
  "no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
  "no-use-before-define": ["error", { functions: false, classes: false }],
  "no-var": "error",
  "object-shorthand": "error",
  "prefer-const": "error",
  "require-await": "error",
};

export default [
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  { files: ["src/server/web/**/*.js"], languageOptions: { sourceType: "module", globals: globals.browser }, rules: { ...rules, "no-console": "error" } },
  // A test's page.evaluate() runs in the browser.
  { files: ["tests/web/**/*.mjs"], languageOptions: { globals: { ...globals.node, ...globals.browser } }, rules: { ...rules, "max-lines": ["error", 600] } },
];
