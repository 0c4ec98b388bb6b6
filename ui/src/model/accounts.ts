import type { LedgerEntry } from "../data/source";
import { count, many } from "./numbers";

export interface Account {
  entry: LedgerEntry;
  skipped: number;
  reasons: [string, number][];
  dormant: [string, number][];
  asleep: number;
  /** How often the hook should have fired: `due` counts steps, and each site that is not dormant fires in each. */
  expected: number;
  missing: number;
  /** Calls of modules that did not happen. A module need not be called in each step, so this is no fault. */
  uncalled: number;
  /** A hook at a point of the backward pass fires several times a step when gradients are accumulated. */
  more: boolean;
}

/** Points at which a hook fires once for each parameter and step, whatever the forward pass calls. */
const AT_PARAMETERS = ["grad", "grad_accumulated", "grad_final", "update"];

/** Check that a hook fired wherever it was due, or was skipped for a stated reason. */
export function account(entry: LedgerEntry): Account {
  const reasons = Object.entries(typeof entry.skipped === "number" ? { "": entry.skipped } : entry.skipped ?? {})
    .filter(([, times]) => times > 0);
  const skipped = reasons.reduce((sum, [, times]) => sum + times, 0);
  const dormant = Object.entries(entry.dormant ?? {}).filter(([, sites]) => sites > 0);
  const asleep = dormant.reduce((sum, [, sites]) => sum + sites, 0);
  const done = entry.fired + skipped + entry.failed;
  // `due` may already be summed over the sites; then it is the expected number itself.
  const expected = done === entry.due || entry.fired + skipped === entry.due ? entry.due : entry.due * Math.max(0, entry.sites - asleep);
  const balanced = entry.fired + skipped === expected || done === expected;
  const less = balanced ? 0 : Math.max(0, expected - entry.fired - skipped), certain = AT_PARAMETERS.includes(entry.at);
  return {
    entry, skipped, reasons, dormant, asleep, expected, missing: certain ? less : 0, uncalled: certain ? 0 : less,
    more: !balanced && entry.fired + skipped > expected,
  };
}

/** Say in words what is missing, or null if nothing is. */
export function imbalance(one: Account): string | null {
  const { entry, missing, expected, skipped } = one;
  if (!missing) return null;
  return `${entry.hook} should have fired ${many(expected, "time")}. It fired ${many(entry.fired, "time")}`
    + `${skipped ? ` and was skipped ${many(skipped, "time")}` : ""}, so ${many(missing, "firing")} ${missing === 1 ? "has" : "have"} no explanation.`;
}

export function reasonsText(reasons: [string, number][]): string {
  return reasons.map(([why, times]) => why ? `${count(times)}: ${why}` : count(times)).join("; ");
}
