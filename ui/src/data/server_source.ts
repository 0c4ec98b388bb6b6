import type {
  Change, Curve, CurveRequest, Difference, Histogram, MatrixRequest, Range, Run, RunHead, Source, TargetNumber,
} from "./source";
import { DataError } from "./source";

/** Milliseconds before a closed stream of events is opened again. */
const RETRY = 2000;

/** Reads runs from `tenterhook view`. All addresses are relative to the page, which holds the token in its path. */
export class ServerSource implements Source {
  readonly follows = true;
  private listeners = new Set<(change: Change) => void>();
  private connections = new Set<(connected: boolean) => void>();
  private events: EventSource | null = null;

  runs(): Promise<RunHead[]> {
    return this.json("runs", {});
  }

  run(id: string): Promise<Run> {
    return this.json("run", { run: id });
  }

  async matrix(request: MatrixRequest, signal?: AbortSignal): Promise<Float32Array> {
    const answer = await this.ask("matrix", {
      method: "POST", body: JSON.stringify(request), headers: { "Content-Type": "application/json" }, signal,
    });
    return littleEndian(await answer.arrayBuffer());
  }

  curve(request: CurveRequest, signal?: AbortSignal): Promise<Curve> {
    return this.json("curve", { ...request }, signal);
  }

  histogram(run: string, hook: string, range: Range, signal?: AbortSignal): Promise<Histogram> {
    return this.json("histogram", { run, hook, start: range[0], end: range[1] }, signal);
  }

  numbers(run: string, target: number): Promise<TargetNumber[]> {
    return this.json("numbers", { run, target });
  }

  difference(a: string, b: string): Promise<Difference> {
    return this.json("difference", { a, b });
  }

  onChange(listener: (change: Change) => void): () => void {
    this.listeners.add(listener);
    this.listen();
    return () => this.listeners.delete(listener);
  }

  onConnection(listener: (connected: boolean) => void): () => void {
    this.connections.add(listener);
    return () => this.connections.delete(listener);
  }

  stepsPerValue(): number {
    return 1;
  }

  private listen(): void {
    if (this.events) return;
    const events = this.events = new EventSource("api/events");
    events.addEventListener("open", () => this.connections.forEach(tell => tell(true)));
    events.addEventListener("change", event => {
      const change = JSON.parse((event as MessageEvent<string>).data) as Change;
      this.listeners.forEach(tell => tell(change));
    });
    events.addEventListener("error", () => {
      this.connections.forEach(tell => tell(false));
      // The browser itself retries a broken stream, but not one that was refused.
      if (events.readyState !== EventSource.CLOSED) return;
      this.events = null;
      setTimeout(() => this.listen(), RETRY);
    });
  }

  private async json<T>(route: string, query: Record<string, string | number>, signal?: AbortSignal): Promise<T> {
    const text = new URLSearchParams(Object.entries(query).map(([key, value]) => [key, String(value)])).toString();
    const answer = await this.ask(text ? `${route}?${text}` : route, { signal });
    try {
      return await answer.json() as T;
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new DataError("the server's answer is not JSON", "check that page and server have the same version");
    }
  }

  private async ask(route: string, init: RequestInit): Promise<Response> {
    let answer: Response;
    try {
      answer = await fetch(`api/${route}`, init);
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new DataError("the server does not answer", "check that `tenterhook view` still runs, then try again");
    }
    if (answer.ok) return answer;
    const told = await answer.json().catch(() => null) as { error?: string; remedy?: string } | null;
    throw new DataError(told?.error ?? `the server answered ${answer.status}`, told?.remedy ?? "reload the page");
  }
}

function littleEndian(buffer: ArrayBuffer): Float32Array {
  if (new Uint8Array(new Uint16Array([1]).buffer)[0] === 1) return new Float32Array(buffer);
  const view = new DataView(buffer);
  return Float32Array.from({ length: buffer.byteLength / 4 }, (_, i) => view.getFloat32(i * 4, true));
}
