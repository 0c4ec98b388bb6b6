import type { RunHead } from "../data/source";

/** Give each run a title of its own: runs of one folder often have the same name, and then the longer id tells more. */
export function withTitles(heads: RunHead[]): RunHead[] {
  const times = new Map<string, number>();
  for (const { title } of heads) times.set(title, (times.get(title) ?? 0) + 1);
  return heads.map(head => times.get(head.title) === 1 ? head : { ...head, title: head.id });
}
