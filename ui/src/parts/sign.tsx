const ICONS: Record<string, string> = { error: "✕", warning: "▲", note: "●", good: "✓", unknown: "?" };

/** A short mark with an icon and a word, so that colour is not the only sign. */
export function Sign({ kind, text }: { kind: string; text: string }) {
  const known = kind in ICONS ? kind : "note";
  return <span class={`sign ${known}`}><span aria-hidden="true">{ICONS[known]}</span> {text}</span>;
}
