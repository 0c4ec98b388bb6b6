/** Give a canvas the size of its place in device pixels, and return its context in CSS pixels. */
export function surface(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const scale = window.devicePixelRatio || 1;
  const wide = Math.max(1, Math.round(width * scale)), high = Math.max(1, Math.round(height * scale));
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d")!;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

export const FONT = '11px system-ui, -apple-system, "Segoe UI", sans-serif';
