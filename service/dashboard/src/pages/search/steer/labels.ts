/** The tags in a text, between commas, each once. */
export function parseTags(text: string): string[] {
  const found = text.split(",").map((tag) => tag.trim().replace(/\s+/g, " "));
  return [...new Set(found.filter(Boolean))];
}
