/** Address of the page about a code. */
export const CODE_PAGE = "https://tenterhook.readthedocs.io/en/latest/findings/{code}.html";

/** Return the address of the page about a code, or null if the text is no code. */
export function codePage(code: string): string | null {
  return /^TH\d{3,4}$/.test(code) ? CODE_PAGE.replace("{code}", code) : null;
}
