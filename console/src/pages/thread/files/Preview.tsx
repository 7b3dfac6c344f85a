import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { FileEntry } from "@skerry/client";
import { lazy, Suspense, useEffect, useState, type ComponentType, type LazyExoticComponent } from "react";
import { Button } from "../../../ui/Button";
import { Choice } from "../../../ui/Choice";
import { Empty } from "../../../ui/Empty";
import { Failure } from "../../../ui/Failure";
import { bytes, Time } from "../../../ui/format";
import { save } from "../../../ui/save";
import { Skeleton } from "../../../ui/Skeleton";
import { rasterType } from "./raster";
import type { Owned } from "../owned";
import { changeable, mostEdited } from "./bytes";
import { Change } from "./Change";

interface Shown {
  owned: Owned;
  entry: FileEntry;
}

/** How files are shown that are more than text. What a name says is tried; nothing of a file is run. */
const views: { name: RegExp; label: string; View: LazyExoticComponent<ComponentType<Shown>>; text: boolean }[] = [
  { name: /\.(csv|tsv)$/i, label: "Table", View: lazy(() => import("./Sheet")), text: true },
  { name: /\.ipynb$/i, label: "Notebook", View: lazy(() => import("./Notebook")), text: true },
  { name: /\.html?$/i, label: "Page", View: lazy(() => import("./Page")), text: true },
  { name: /\.pdf$/i, label: "Pages", View: lazy(() => import("./Pdf")), text: false },
];

const mostImage = 16 << 20;
const mostLines = 2_000;

async function blobOf({ thread }: Owned, path: string, type: string, signal?: AbortSignal): Promise<Blob> {
  const parts: BlobPart[] = [];
  for await (const part of await thread.files.get(path, signal === undefined ? {} : { signal })) parts.push(part as BlobPart);
  return new Blob(parts, { type });
}

interface Props extends Shown {
  as: "text" | undefined;
  onAs: (as: "text" | undefined) => void;
  onGone: (path: string | undefined) => void;
}

export function Preview({ owned, entry, as, onAs, onGone }: Props) {
  const name = entry.path.slice(entry.path.lastIndexOf("/") + 1);
  const download = useMutation({ mutationFn: async () => save(await blobOf(owned, entry.path, "application/octet-stream"), name) });
  const view = entry.is_dir || entry.bytes === 0 ? undefined : views.find((v) => v.name.test(name));
  const mine = changeable(entry.path);
  return (
    <>
      <div className="detail-head files-head">
        <h2>
          <bdi>{name}</bdi>
        </h2>
        <div className="line">
          {view?.text === true && (
            <Choice
              label="How it is shown"
              value={as ?? "view"}
              options={[
                { id: "view", label: view.label },
                { id: "text", label: "Text" },
              ]}
              onChange={(v) => onAs(v === "text" ? v : undefined)}
            />
          )}
          {!entry.is_dir && mine && entry.bytes <= mostEdited && !binary.test(name) && (
            <Link to="/threads/$thread/files" params={{ thread: owned.thread.id }} search={{ path: entry.path, edit: true }} className="button">
              Edit
            </Link>
          )}
          {mine && <Change owned={owned} entry={entry} onGone={onGone} />}
          {!entry.is_dir && (
            <Button isDisabled={download.isPending} onPress={() => download.mutate()}>
              {download.isPending ? "Downloading…" : "Download"}
            </Button>
          )}
        </div>
      </div>
      <p className="hint num">
        <bdi className="mono">{entry.path}</bdi> · {entry.is_dir ? "folder" : bytes(entry.bytes)} · <Time at={entry.modified_at} />
        {entry.symlink !== undefined && (
          <>
            {" "}
            · link to <bdi className="mono">{entry.symlink}</bdi>
          </>
        )}
      </p>
      {download.isError && <Failure error={download.error} what="The file cannot be downloaded" />}
      {!entry.is_dir &&
        (view !== undefined && as === undefined ? (
          <Suspense fallback={<Skeleton rows={8} label="The file is loading" />}>
            <view.View owned={owned} entry={entry} />
          </Suspense>
        ) : (
          <Content owned={owned} entry={entry} />
        ))}
    </>
  );
}

const binary = /\.(png|jpe?g|gif|webp|bmp|pdf|zip|gz|tgz|xz|zst|tar|wasm|xlsx?|docx?|pptx?|parquet|sqlite3?|db|so|o|pyc|mp[34]|woff2?)$/i;

/** What a file is, by its first bytes alone: a name or a server says nothing about what a sandbox wrote. */
function Content({ owned, entry }: { owned: Owned; entry: FileEntry }) {
  const image = useQuery({
    queryKey: [...owned.known, "files", "image", entry.path, entry.modified_at],
    enabled: /\.(png|jpe?g|gif|webp|bmp)$/i.test(entry.path) && entry.bytes > 0 && entry.bytes <= mostImage,
    staleTime: Infinity,
    gcTime: 60_000,
    queryFn: async ({ signal }) => {
      const raw = await blobOf(owned, entry.path, "application/octet-stream", signal);
      const type = rasterType(new Uint8Array(await raw.slice(0, 16).arrayBuffer()));
      return type === undefined ? null : new Blob([raw], { type });
    },
  });
  if (image.isLoading) return <Skeleton rows={4} label="The image is loading" />;
  if (image.isError) return <Failure error={image.error} what="The image cannot be shown" />;
  if (image.data) return <Picture blob={image.data} name={entry.path} />;
  return <Text owned={owned} entry={entry} />;
}

function Picture({ blob, name }: { blob: Blob; name: string }) {
  const [url, setUrl] = useState<string>();
  const [broken, setBroken] = useState(false);
  useEffect(() => {
    const made = URL.createObjectURL(blob);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  if (broken) return <Empty title="This image is broken" />;
  return url === undefined ? null : (
    <div className="picture">
      <img src={url} alt={name} onError={() => setBroken(true)} />
    </div>
  );
}

function Text({ owned, entry }: { owned: Owned; entry: FileEntry }) {
  const text = useQuery({
    queryKey: [...owned.known, "files", "text", entry.path, entry.modified_at],
    queryFn: ({ signal }) => owned.thread.files.read(entry.path, { limit: mostLines }, { signal }),
  });
  if (text.isPending) return <Skeleton rows={8} label="The text is loading" />;
  if (text.isError) return <Failure error={text.error} what="The text cannot be shown" />;
  if (text.data.encoding !== "utf-8") {
    return (
      <Empty title="This file is no text">
        <p>Download it to look at it.</p>
      </Empty>
    );
  }
  const { content, total_lines, end_line } = text.data;
  return (
    <>
      <pre className="output" tabIndex={0} role="region" aria-label="Text of the file">
        {content === "" ? <span className="muted">The file is empty</span> : <bdi>{content}</bdi>}
      </pre>
      {end_line < total_lines && (
        <p className="note num">
          The first {end_line} of {total_lines} lines. The download has all of them.
        </p>
      )}
    </>
  );
}
