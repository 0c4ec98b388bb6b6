/**
 * Return a name with its invisible characters made visible. A character that reverses the text after it, or that has no
 * width, could make one name look like another.
 */
export function visible(name: string): string {
  return name.replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    character => `⟨${character.codePointAt(0)!.toString(16).padStart(4, "0")}⟩`);
}
