import { copyFileSync } from "node:fs";
import { resolve } from "node:path";
import { defineConfig } from "vite";

const out = resolve(import.meta.dirname, "../src/tenterhook/view/app");

// The page must work from a file and under a strict content security policy, so the build is one classic script and
// one style sheet. Vite would rewrite the tags of index.html to a module, so the file is copied as it is.
export default defineConfig({
  base: "./",
  publicDir: false,
  plugins: [{ name: "copy-page", closeBundle: () => copyFileSync(resolve(import.meta.dirname, "index.html"), resolve(out, "index.html")) }],
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
