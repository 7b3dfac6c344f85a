// Elements of text and tables. No other one is left: a browser connects for some of them before it asks the policy of the page.
const kept = new Set(
  "p div span br hr h1 h2 h3 h4 h5 h6 section article header footer main aside nav address figure figcaption blockquote pre code kbd samp var b i u s em strong small mark sub sup q cite abbr dfn time del ins ul ol li dl dt dd table caption colgroup col thead tbody tfoot tr th td details summary ruby rt rp bdi bdo wbr center font".split(
    " ",
  ),
);

/** HTML with its elements of text alone. Each other tag has a name that no browser knows. */
export function bare(html: string): string {
  return withoutHidden(html).replace(/<(\/?)([a-z][^\s/>]*)/gi, (tag, end: string, name: string) => (kept.has(name.toLowerCase()) ? tag : `<${end}x-${name}`));
}

/** Leaves out what a browser does not show either. It is for the eye: what is missed is shown as text. */
function withoutHidden(html: string): string {
  const open = /<(script|style|title)\b/gi;
  const out: string[] = [];
  let at = 0;
  for (let m = open.exec(html); m !== null; m = open.exec(html)) {
    const close = new RegExp(`</${m[1]}`, "gi");
    close.lastIndex = open.lastIndex;
    const end = close.exec(html) === null ? -1 : html.indexOf(">", close.lastIndex);
    if (end < 0) break;
    out.push(html.slice(at, m.index));
    at = end + 1;
    open.lastIndex = at;
  }
  return out.join("") + html.slice(at);
}
