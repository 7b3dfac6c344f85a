import type { ReactNode } from "react";

// What a text has and a reader does not see: control characters, those that turn the direction of text, and those without width.
// Line breaks and tabs are seen.
const unseen = /[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|\p{Surrogate}/gu; // eslint-disable-line no-control-regex

const names: Record<string, string> = {
  "202A": "left-to-right embedding",
  "202B": "right-to-left embedding",
  "202C": "pop directional formatting",
  "202D": "left-to-right override",
  "202E": "right-to-left override",
  "2066": "left-to-right isolate",
  "2067": "right-to-left isolate",
  "200B": "zero width space",
  "200F": "right-to-left mark",
  "FEFF": "zero width no-break space",
  "001B": "escape",
  "0000": "null",
};

function code(c: string): string {
  return (c.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
}

/** The text with what is not seen by its number, for titles and names of buttons. */
export function visible(text: string): string {
  return text.replace(unseen, (c) => `⟨U+${code(c)}⟩`);
}

/** A text of a stranger: as text, apart from what is around it, and with nothing in it that is not seen. */
export function Shown({ children }: { children: string }) {
  const parts: ReactNode[] = [];
  let at = 0;
  for (const m of children.matchAll(unseen)) {
    const hex = code(m[0]);
    parts.push(
      children.slice(at, m.index),
      <span key={m.index} className="unseen" title={names[hex] ?? "a character that is not seen"}>
        U+{hex}
      </span>,
    );
    at = m.index + m[0].length;
  }
  return <bdi>{at === 0 ? children : [...parts, children.slice(at)]}</bdi>;
}
