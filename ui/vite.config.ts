import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { defineConfig } from "vite";

const out = resolve(import.meta.dirname, "../src/tenterhook/view/app");

// The libraries in the script, whose licenses must go wherever the script goes: into wheels, and into reports.
const { dependencies } = JSON.parse(readFileSync(resolve(import.meta.dirname, "package.json"), "utf8"));
const licenses = Object.keys(dependencies).map((name) => `${name}\n\n${readFileSync(resolve(import.meta.dirname, "node_modules", name, "LICENSE"), "utf8")}`);

function finish(): void {
  copyFileSync(resolve(import.meta.dirname, "index.html"), resolve(out, "index.html"));
  const script = resolve(out, "app.js");
  writeFileSync(script, `/*! This script contains these libraries:\n\n${licenses.join("\n")}*/\n${readFileSync(script, "utf8")}`);
}

// The page must work from a file and under a strict content security policy, so the build is one classic script and
// one style sheet. Vite would rewrite the tags of index.html to a module, so the file is copied as it is.
export default defineConfig({
  base: "./",
  publicDir: false,
  plugins: [{ name: "finish", closeBundle: finish }],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: out,
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    modulePreload: false,
    rolldownOptions: {
      input: resolve(import.meta.dirname, "src/main.tsx"),
      output: { format: "iife", entryFileNames: "app.js", assetFileNames: "app.[ext]" },
    },
  },
  test: { include: ["tests/**/*.test.ts"], testTimeout: 60_000 },
} as Parameters<typeof defineConfig>[0]);
