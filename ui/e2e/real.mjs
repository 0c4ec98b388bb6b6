import { launch, open, SHOTS } from "./browser.mjs";
import { checkPage, settled } from "./checks.mjs";
const base = process.env.BASE, b = await launch(); const { page, faults } = await open(b, "wide", "light", base);
for (const [n, h] of [["o", "page=overview"], ["f", "page=flow"], ["h", "page=hooks"], ["c", "page=compare"]]) {
  await page.goto(`${base}#${h}`); await page.waitForSelector("main .card, main [role=treeitem]"); await settled(page);
  if (n === "f") { await page.locator('[role=treeitem]').nth(1).click(); await page.waitForTimeout(800); }
  await checkPage(page, faults, n);
  await page.screenshot({ path: `${SHOTS}/real-${n}.png`, fullPage: true });
}
await b.close();
