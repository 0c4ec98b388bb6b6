import { useLayoutEffect, useRef } from "preact/hooks";
import { surface } from "../draw/surface";
import { css, position, type Scale, SHADES, ticksOf } from "../model/colour";
import { tick } from "../model/numbers";
import { useView } from "./view";

const WIDTH = 220, HEIGHT = 10;

export interface LegendProps { range: [number, number]; scale: Scale; palette: Uint32Array; title: string; note: string; busy: boolean }

/** The meaning of the colours, with numbers, and of the cells that are no numbers. */
export function Legend({ range, scale, palette, title, note, busy }: LegendProps) {
  const { ink } = useView();
  const bar = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    const context = surface(bar.current!, WIDTH, HEIGHT);
    for (let x = 0; x < WIDTH; x++) {
      context.fillStyle = css(palette[Math.round(x / (WIDTH - 1) * (SHADES - 1))]!);
      context.fillRect(x, 0, 1, HEIGHT);
    }
  }, [palette]);
  return (
    <div class="legend">
      <div class="legend-scale">
        <span class="legend-title">{title}</span>
        <div class="legend-bar">
          <canvas ref={bar} role="img" aria-label={`Colours from ${tick(range[0])} to ${tick(range[1])}, ${scale === "log" ? "logarithmic" : "linear"}`} />
          <div class="legend-ticks">
            {ticksOf(range, scale, 7).map(value => (
              <span key={value} style={{ left: `${(position(value, range, scale) * 100).toFixed(2)}%` }}>{tick(value)}</span>))}
          </div>
        </div>
      </div>
      <ul class="legend-signs">
        <li><i class="swatch bad" />not finite</li>
        {scale !== "ratio" && <li><i class="swatch" style={{ background: css(ink.cells.zero) }} />zero</li>}
        <li><i class="swatch" style={{ background: css(scale === "ratio" ? ink.cells.zero : ink.cells.nothing) }} />{scale === "ratio" ? "not in both" : "nothing recorded"}</li>
      </ul>
      <p class="legend-note">{note}{busy && <span class="busy"> · loading</span>}</p>
    </div>
  );
}
