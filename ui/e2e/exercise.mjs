import { statSync } from "node:fs";
import { check, eventually, mapPrint, settled } from "./checks.mjs";

const rowCount = page => page.locator('[role="treeitem"]').count();
const hash = page => page.evaluate(() => decodeURIComponent(location.hash));

/** Read the page about a code, which needs no network. */
export async function exerciseCode(page, base) {
  await page.goto(`${base}#page=overview&run=watched%2FSequential`);
  await page.locator("button.code").first().click();
  const dialog = page.locator("dialog.finding-page[open]");
  check(/^TH\d{3}: /.test(await dialog.locator("h2").first().innerText()), "the page about a code has its title");
  check(await dialog.locator("pre").count() > 1, "the page about a code shows programs");
  const box = await dialog.boundingBox(), view = page.viewportSize();
  check(box.x >= 0 && box.x + box.width <= view.width && box.y + box.height <= view.height, "the page about a code fits");
}

/** Close it again. */
export async function closeCode(page) {
  await page.locator("dialog.finding-page[open] button.close").click();
  check(await page.locator("dialog.finding-page[open]").count() === 0, "the page about a code is closed");
}

/** Use the page Flow as a reader does, with the pointer and with the keys. */
export async function exerciseFlow(page, base) {
  await page.goto(`${base}#page=flow&run=gpt-nan`);
  await page.waitForSelector('[role="treeitem"]');
  await settled(page);

  // expand and collapse
  const before = await rowCount(page);
  const item = name => page.locator(`[role="treeitem"][title^="${name} "]`);
  await item("transformer.h.1").locator(".fold").click();
  await eventually(page, "a closed module is in the address", () => location.hash.includes("shut=transformer.h.1"));
  check(await item("transformer.h.1").getAttribute("aria-expanded") === "false", "a closed module says that it is closed");
  await item("transformer.h.0.attn").locator(".fold").click();
  await eventually(page, "a module opens", () => location.hash.includes("open=transformer.h.0.attn"));
  check(await item("transformer.h.0.attn").getAttribute("aria-expanded") === "true", "an open module says that it is open");
  await page.locator('[role="tree"]').focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowLeft");
  await eventually(page, "the key Left closes a module", count => document.querySelectorAll('[role="treeitem"]').length < count, before);
  await page.keyboard.press("ArrowRight");
  await eventually(page, "the key Right opens it again", count => document.querySelectorAll('[role="treeitem"]').length >= count, before);

  // zoom and pan with the pointer
  const cells = page.locator(".map-cells"), box = await cells.boundingBox(), middle = { x: box.x + box.width / 2, y: box.y + box.height / 3 };
  const print = await mapPrint(page);
  await page.mouse.move(middle.x, middle.y);
  check((await page.locator(".tip").innerText()).includes("step"), "the tooltip tells the step");
  await page.keyboard.down("Control");
  for (let i = 0; i < 6; i++) await page.mouse.wheel(0, -120);
  await page.keyboard.up("Control");
  await eventually(page, "the wheel zooms", () => location.hash.includes("steps="));
  await settled(page);
  check(await mapPrint(page) !== print, "zooming changes the map");
  const steps = (await hash(page)).match(/steps=([^&]+)/)?.[1];
  const [from, to] = steps.split("~").map(Number);
  check(Math.abs((from + to) / 2 - 600) < 40, `zooming keeps the place under the pointer (${steps})`);
  await page.mouse.move(middle.x, middle.y);
  await page.mouse.down();
  await page.mouse.move(middle.x - 160, middle.y, { steps: 5 });
  await page.mouse.up();
  await eventually(page, "dragging pans", old => !decodeURIComponent(location.hash).includes(`steps=${old}&`) && location.hash.includes("steps="), steps);
  check(!(await hash(page)).includes("target="), "dragging does not select");

  // select a cell with the pointer
  await settled(page);
  await page.mouse.click(middle.x, middle.y);
  await page.waitForSelector(".details .curve-plot canvas");
  check((await hash(page)).includes("step="), "a click selects a step");
  const seen = await page.locator(".details .curve-plot").boundingBox();
  check(seen.y + seen.height <= page.viewportSize().height, "the curve is in sight without scrolling");

  // the keys, with text for a screen reader
  await cells.focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  await eventually(page, "the cell under the keys is told", () => /step/.test(document.querySelector('.map [aria-live]').textContent));
  await page.keyboard.press("0");
  await eventually(page, "the key 0 shows all steps", () => !location.hash.includes("steps="));
  await page.keyboard.press("+");
  await eventually(page, "the key + zooms", () => location.hash.includes("steps="));

  // search
  const search = page.locator('input[type="search"]');
  await search.fill("**.h.7.**.weight !**.ln_*.*");
  await eventually(page, "the search counts its matches", () => document.querySelector(".matches").textContent.startsWith("4 of"));
  check(await page.locator('[role="option"]').count() === 4, "the search shows the matches");
  await search.fill("no_such_target");
  await page.getByText("No target of this series matches.").waitFor();
  await page.getByRole("button", { name: "Show all targets" }).click();
  await page.waitForSelector('[role="treeitem"]');

  // restore from the address
  await page.locator('[role="tree"]').focus();
  await page.keyboard.press("End");
  await page.locator('[role="treeitem"][title="lm_head.weight"]').click();
  await settled(page);
  const address = page.url(), shown = await page.locator(".details h2").innerText(), map = await mapPrint(page);
  const other = await page.context().newPage();
  await other.goto(address);
  await other.waitForSelector(".details .curve-plot canvas");
  await settled(other);
  check(await other.locator(".details h2").innerText() === shown, "a link restores the selection");
  check(await mapPrint(other) === map, "a link restores the map");
  await other.close();

  // zoom into a module, and back
  await page.locator('[role="tree"]').focus();
  await page.keyboard.press("Home");
  await item("transformer.h.1").dblclick();
  await page.waitForSelector(".crumbs");
  await page.goBack();
  await eventually(page, "the back button leaves the module", () => !document.querySelector(".crumbs"));

  // export
  for (const [place, kind] of [[".flow-map", "PNG"], [".flow-map", "CSV"], [".details .curve", "PNG"], [".details .curve", "CSV"]]) {
    const [download] = await Promise.all([page.waitForEvent("download").catch(() => null), page.locator(place).getByRole("button", { name: kind, exact: true }).first().click()]);
    check(download, `${place} exports ${kind}`);
    if (!download) continue;
    check(download.suggestedFilename().endsWith(kind.toLowerCase()), `${place} exports ${kind}`);
    check(statSync(await download.path()).size > 400, `${place} exports a ${kind} with content`);
  }
}

/** Select a row with a finger, and switch the theme. */
export async function exercisePhone(page, base) {
  await page.goto(`${base}#page=flow&run=gpt-nan`);
  await page.waitForSelector('[role="treeitem"]');
  await page.locator('[role="treeitem"]').nth(2).tap();
  await page.waitForSelector(".details .curve-plot canvas");
  const curve = await page.locator(".details .curve-plot").boundingBox();
  check(curve.y < page.viewportSize().height - 60, "on a phone, the curve is in sight");
  await page.locator(".more summary").tap();
  await page.getByLabel("Scale").selectOption("linear");
  await eventually(page, "the scale is in the address", () => location.hash.includes("scale=linear"));
  await page.locator(".theme").tap();
  await eventually(page, "the theme changes", () => document.documentElement.dataset.theme === "dark");
  await page.reload();
  await eventually(page, "the theme is kept", () => document.documentElement.dataset.theme === "dark");
  await settled(page);
}
