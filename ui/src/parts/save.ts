/** Let the reader save a file. The name keeps only characters that every system allows. */
export function saveFile(name: string, data: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data);
  link.download = name.replace(/[^\w.·-]+/g, "_").slice(-120);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function saveText(name: string, type: string, text: string): void {
  saveFile(name, new Blob([text], { type }));
}

export function saveCanvas(name: string, canvas: HTMLCanvasElement): void {
  canvas.toBlob(made => made && saveFile(name, made), "image/png");
}
