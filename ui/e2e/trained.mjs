// Records real runs with the Python package, and serves them with the real server.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const RECORD = resolve(import.meta.dirname, "record.py");

/** Start a program, and hand each line that it prints to `hear`. */
function start(program, given, hear) {
  const child = spawn(program, given, { stdio: ["ignore", "pipe", "inherit"] });
  child.on("error", () => {
    console.error(`${program} cannot be started. Activate the Python environment that has tenterhook, then run this again.`);
    process.exit(2);
  });
  createInterface({ input: child.stdout }).on("line", hear);
  return child;
}

/** Record two runs, write their report, and serve them. */
export async function trained() {
  const folder = mkdtempSync(join(tmpdir(), "tenterhook-e2e-")), report = join(folder, "report.html");
  const children = [];
  process.on("exit", () => {
    children.forEach(child => child.kill("SIGKILL")); // a process that goes on would write into the removed folder
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });
  try {
    execFileSync("python", [RECORD, folder], { stdio: "inherit" });
    execFileSync("tenterhook", ["run", "--quiet", "--out", join(folder, "watched"), RECORD], { stdio: "ignore" });
    execFileSync("tenterhook", ["report", folder, "--out", report], { stdio: "ignore" });
  } catch (error) {
    console.error(`The runs for this test cannot be recorded: ${error.message}. Activate the Python environment that has tenterhook.`);
    process.exit(2);
  }
  const base = await new Promise((found, fail) => {
    const server = start("tenterhook", ["view", folder, "--no-browser"], line => {
      const address = /http:\S+/.exec(line)?.[0];
      if (address) found(address);
    });
    server.on("exit", code => fail(new Error(`tenterhook view ended with the code ${code}`)));
    children.push(server);
  });
  return {
    base, report: pathToFileURL(report).href,
    /** Train while the pages are open. `hear` gets each step, when its row has been written. */
    train: hear => children.push(start("python", [RECORD, folder, "live"], line => hear(Number(line)))),
    stopServer: () => children[0].kill(),
  };
}
