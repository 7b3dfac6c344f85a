import { useQuery } from "@tanstack/react-query";
import type { FileEntry } from "@skerry/client";
import { Failure } from "../../../ui/Failure";
import { bytes } from "../../../ui/format";
import { Skeleton } from "../../../ui/Skeleton";
import type { Owned } from "../owned";
import { bare } from "./bare";
import { beginOf } from "./bytes";

const mostBytes = 2 << 20;

// The frame has no origin, no scripts, no forms and no way out: its sandbox allows nothing, and the policy of this page holds in it, too.
// What is here says the same once more. Of the file there is text alone: a frame or a link in it would connect, though it is refused then.
const head = `<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none'"><meta http-equiv="x-dns-prefetch-control" content="off"><meta name="referrer" content="no-referrer">`;

/** HTML as a page, without its scripts, styles and images. */
export default function PagePreview({ owned, entry }: { owned: Owned; entry: FileEntry }) {
  const html = useQuery({
    queryKey: ["preview", ...owned.known, "html", entry.path, entry.modified_at],
    queryFn: async ({ signal }) => new TextDecoder().decode(await beginOf(owned, entry.path, mostBytes, signal)),
    staleTime: Infinity,
    gcTime: 60_000,
  });
  if (html.isPending) return <Skeleton rows={8} label="The page is loading" />;
  if (html.isError) return <Failure error={html.error} what="The page cannot be shown" />;
  return (
    <>
      <iframe className="frame" sandbox="" referrerPolicy="no-referrer" title="The page, without its scripts" srcDoc={head + bare(html.data)} />
      <p className="hint">
        Scripts, styles, images and links of the page do not work here.
        {entry.bytes > mostBytes && ` This is the beginning of ${bytes(entry.bytes)}.`} The download is the file as it is.
      </p>
    </>
  );
}
