import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Change, RunHead, Source } from "../data/source";
import type { State } from "../model/state";
import type { Ink } from "./theme";

/** What every part of the page can see. */
export interface View {
  source: Source;
  runs: RunHead[];
  state: State;
  go: (change: Partial<State>) => void;
  /** Return the address of the page after a change, for links. */
  link: (change: Partial<State>) => string;
  ink: Ink;
  /** Counts the updates of the shown run. */
  beat: number;
  /** The last change of each run that changed since the page was opened. */
  changes: Record<string, Change>;
}


export const ViewContext = createContext<View | null>(null);

export function useView(): View {
  const view = useContext(ViewContext);
  if (!view) throw new Error("a part is outside the page");
  return view;
}
