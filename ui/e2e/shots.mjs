// Takes the pictures of the documentation: npm run shots -- <folder> <address of a running tenterhook view> [run] [row]
// The row is that of a module or a target, such as blocks.7.mlp; without it, the picture shows the middle row.
import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { launch, open } from "./browser.mjs";
import { settled } from "./checks.mjs";

const [folder, base, run = "", row = ""] = process.argv.slice(2);
if (!base) throw new Error("say which folder to write to, and the address that `tenterhook view` printed");
mkdirSync(folder, { recursive: true });
const browser = await launch();
const { page } = await open(browser, "wide", "light", base);
const about = run ? `&run=${encodeURIComponent(run)}` : "";

async function shoot(name, place) {
  await page.goto("about:blank"); // so that each picture begins with a fresh page
  await page.goto(`${base}#${place}`);
  await page.waitForSelector("main h1, main [role=treeitem], main .card");
  await settled(page);
  if (place.startsWith("page=flow") && !row) {
    const rows = page.locator("[role=treeitem]");
    await rows.nth(Math.floor(await rows.count() / 2)).click();
    await settled(page);
  }
  await page.mouse.move(0, 0);
  await page.screenshot({ path: resolve(folder, `${name}.png`) });
}

await shoot("overview", `page=overview${about}`);
await shoot("flow", `page=flow${about}${row ? `&target=${encodeURIComponent(row)}` : ""}`);
await shoot("compare", `page=compare${about}`);
await browser.close();
