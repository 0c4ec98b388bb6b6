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
  /** A hook at a point of the backward pass fires several times a step when gradients are accumulated. */
  more: boolean;
}

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
  return {
    entry, skipped, reasons, dormant, asleep, expected, missing: balanced ? 0 : Math.max(0, expected - entry.fired - skipped),
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
