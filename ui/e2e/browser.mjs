import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { chromium } from "playwright-core";

export const SHOTS = resolve(import.meta.dirname, "screenshots");
export const SIZES = { wide: { width: 1400, height: 900 }, narrow: { width: 390, height: 844 } };

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
/** The browser itself must not ask any other host for anything. */
const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export function launch() {
  if (!existsSync(CHROMIUM)) {
    console.error(`There is no Chromium at ${CHROMIUM}. Install it, or set CHROMIUM to its path.`);
    process.exit(2);
  }
  return chromium.launch({ executablePath: CHROMIUM, args: QUIET });
}

/** Open a page that records what must not happen: errors on the console and requests to other hosts. */
export async function open(browser, size, theme, base) {
  const allowed = base.replace(/[^/]*$/, "");
  const narrow = size === "narrow";
  const context = await browser.newContext({
    viewport: SIZES[size], colorScheme: theme, hasTouch: narrow, isMobile: narrow, deviceScaleFactor: narrow ? 2 : 1, acceptDownloads: true,
  });
  const page = await context.newPage();
  const faults = [];
  page.on("console", message => message.type() === "error" && faults.push(`console: ${message.text()}`));
  page.on("pageerror", error => faults.push(`error: ${error.message}`));
  page.on("dialog", dialog => {
    faults.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", request => {
    const url = request.url();
    if (/^(data|blob):/.test(url) || url.startsWith(allowed)) return;
    faults.push(`request to another host: ${url}`);
  });
  page.setDefaultTimeout(60_000); // a busy machine takes long to open a run
  return { context, page, faults };
}
