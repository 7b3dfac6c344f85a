import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { SkerryError } from "@skerry/client";
import { lazy, Suspense, useRef, useState } from "react";
import { DropZone } from "react-aria-components/DropZone";
import { FileTrigger } from "react-aria-components/FileTrigger";
import { Ask } from "../../../ui/Ask";
import { Button } from "../../../ui/Button";
import { Empty } from "../../../ui/Empty";
import { Failure, messageOf } from "../../../ui/Failure";
import { Skeleton } from "../../../ui/Skeleton";
import { useOwned } from "../owned";
import { changeable, createFile } from "./bytes";
import { FileTree } from "./FileTree";
import { Preview } from "./Preview";
import "./files.css";

const Editor = lazy(() => import("./Editor"));

const route = getRouteApi("/app/threads/$thread/files");

const writable = "/mnt/user-data";
const uploads = "/mnt/user-data/uploads";

interface Upload {
  path: string;
  error?: string;
}

/** The name of a dropped file as a name in the sandbox. */
function nameOf(file: File): string {
  return file.name.replace(/[/\\\0]/g, "_") || "file";
}

export function Files() {
  const { thread } = route.useParams();
  const { path, as, edit } = route.useSearch();
  const navigate = route.useNavigate();
  const known = useQueryClient();
  const owned = useOwned(thread);
  const files = owned.thread.files;
  const [done, setDone] = useState<Upload[]>([]);
  const drop = useRef<HTMLDivElement>(null);
  const chosen = useQuery({
    queryKey: [...owned.known, "files", "stat", path],
    queryFn: ({ signal }) => files.stat(path ?? writable, { signal }),
    enabled: path !== undefined,
  });
  const folder = chosen.data === undefined ? uploads : chosen.data.is_dir ? chosen.data.path : chosen.data.path.replace(/\/[^/]*$/, "");
  const target = folder === writable || folder.startsWith(`${writable}/`) ? (folder === writable ? uploads : folder) : uploads;
  const upload = useMutation({
    mutationFn: async (list: File[]) => {
      const out: Upload[] = [];
      for (const file of list) {
        const to = `${target}/${nameOf(file)}`;
        try {
          await files.put(to, file);
          out.push({ path: to });
        } catch (err) {
          out.push({ path: to, error: messageOf(err) });
        }
        setDone([...out]);
      }
      return out;
    },
    onSuccess: (out) => {
      void known.invalidateQueries({ queryKey: [...owned.known, "files"] });
      const last = out.findLast((u) => u.error === undefined);
      if (last !== undefined) select(last.path);
    },
  });
  const select = (p: string) => void navigate({ search: { path: p } });
  return (
    <section className="files" aria-label="Files">
      <DropZone
        ref={drop}
        className="files-side"
        aria-label={`Drop files to upload into ${target}`}
        getDropOperation={() => "copy"}
        onDrop={async (e) => {
          const list: File[] = [];
          for (const item of e.items) if (item.kind === "file") list.push(await item.getFile());
          if (list.length > 0) upload.mutate(list);
        }}
      >
        <div className="files-bar">
          <FileTrigger allowsMultiple onSelect={(list) => list !== null && list.length > 0 && upload.mutate([...list])}>
            <Button isDisabled={upload.isPending}>{upload.isPending ? "Uploading…" : "Upload…"}</Button>
          </FileTrigger>
          <Ask
            label="New file…"
            title="A new file"
            field="Path"
            value={`${target}/`}
            yes="Create"
            onDone={async (to) => {
              await createFile(owned, to);
              await known.invalidateQueries({ queryKey: [...owned.known, "files"] });
              await navigate({ search: { path: to, edit: true } });
            }}
          />
          <span className="hint">
            or drop files here; they go to <code>{target.slice(writable.length + 1) || "/"}</code>
          </span>
        </div>
        {done.some((u) => u.error !== undefined) && (
          <ul className="failure plain" role="alert">
            {done
              .filter((u) => u.error !== undefined)
              .map((u) => (
                <li key={u.path}>
                  <bdi>{u.path}</bdi>: {u.error}
                </li>
              ))}
          </ul>
        )}
        <FileTree owned={owned} selected={path} onSelect={select} />
      </DropZone>
      <div className="files-view">
        {path !== undefined && edit === true && changeable(path) ? (
          <Suspense fallback={<Skeleton rows={8} label="The editor is loading" />}>
            <h2 className="mono">
              <bdi>{path}</bdi>
            </h2>
            <Editor key={path} owned={owned} path={path} />
          </Suspense>
        ) : (
          <>
            {path === undefined && (
              <Empty title="Choose a file">
                <p>It is shown here. Nothing that a sandbox wrote is run by this page.</p>
              </Empty>
            )}
            {chosen.isError &&
              (chosen.error instanceof SkerryError && chosen.error.status === 404 ? (
                <Empty title="This file is not there any more" />
              ) : (
                <Failure error={chosen.error} what="The file cannot be shown" />
              ))}
            {chosen.data !== undefined && (
              <Preview
                key={`${chosen.data.path} ${chosen.data.modified_at}`}
                owned={owned}
                entry={chosen.data}
                as={as}
                onAs={(v) => void navigate({ search: { path: chosen.data.path, ...(v === undefined ? {} : { as: v }) } })}
                onGone={(to) => void navigate({ search: to === undefined ? {} : { path: to } })}
              />
            )}
          </>
        )}
      </div>
    </section>
  );
}
