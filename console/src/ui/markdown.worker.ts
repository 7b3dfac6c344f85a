// Parses Markdown beside the page: a text of a stranger can keep a parser busy, and the page ends this worker then.
import { fromMarkdown } from "mdast-util-from-markdown";
import { gfmTableFromMarkdown } from "mdast-util-gfm-table";
import { gfmTable } from "micromark-extension-gfm-table";

addEventListener("message", (e: MessageEvent<string>) => {
  postMessage(fromMarkdown(e.data, { extensions: [gfmTable()], mdastExtensions: [gfmTableFromMarkdown()] }));
});
