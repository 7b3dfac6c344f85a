import { useQueries } from "@tanstack/react-query";
import type { FileEntry } from "@skerry/client";
import { useMemo, useState } from "react";
import { Button } from "react-aria-components/Button";
import { Collection } from "react-aria-components/Collection";
import { Tree, TreeItem, TreeItemContent, type Key } from "react-aria-components/Tree";
import { Failure, messageOf } from "../../../ui/Failure";
import { bytes } from "../../../ui/format";
import { Skeleton } from "../../../ui/Skeleton";
import type { Owned } from "../owned";

const roots = ["/mnt/user-data", "/mnt/skills"];

interface Node {
  id: string;
  name: string;
  /** A note stands for what a folder does not have yet. No thread has a file of its id. */
  kind: "folder" | "file" | "note";
  size: string;
  children: Node[];
}

function above(path: string): string[] {
  const out: string[] = [];
  for (let at = path.lastIndexOf("/"); at > 0; at = path.lastIndexOf("/", at - 1)) out.push(path.slice(0, at));
  return out.filter((p) => roots.some((r) => p === r || p.startsWith(`${r}/`)));
}

/** Folders first, then by name as a person counts. */
function inOrder(a: FileEntry, b: FileEntry): number {
  return Number(b.is_dir) - Number(a.is_dir) || a.path.localeCompare(b.path, undefined, { numeric: true });
}

/** The files of a thread. A folder is read when it is opened. */
export function FileTree({ owned, selected, onSelect }: { owned: Owned; selected: string | undefined; onSelect: (path: string) => void }) {
  const [opened, setOpened] = useState<ReadonlySet<string>>(() => new Set(["/mnt/user-data", ...(selected === undefined ? [] : above(selected))]));
  const folders = useMemo(() => [...opened].sort(), [opened]);
  const lists = useQueries({
    queries: folders.map((path) => ({
      queryKey: [...owned.known, "files", "list", path],
      queryFn: ({ signal }: { signal: AbortSignal }) => owned.thread.files.list(path, 1, { signal }),
      staleTime: 1_000,
    })),
  });
  const byFolder = new Map(folders.map((path, i) => [path, lists[i]]));
  // A folder that was not read has a note in place of its files: a tree opens by keys only what has children.
  const note = (folder: string, name: string): Node => ({ id: `${folder}/\0`, name, kind: "note", size: "", children: [] });
  const childrenOf = (folder: string): Node[] => {
    const list = byFolder.get(folder);
    if (list === undefined || list.isPending) return [note(folder, "Loading…")];
    if (list.isError) return [note(folder, messageOf(list.error))];
    if (list.data.items.length === 0) return [note(folder, "Empty")];
    return list.data.items.toSorted(inOrder).map((e) => node(e.path, e.path.slice(e.path.lastIndexOf("/") + 1), e.is_dir, e.is_dir ? "" : bytes(e.bytes)));
  };
  const node = (id: string, name: string, folder: boolean, size: string): Node => ({ id, name, kind: folder ? "folder" : "file", size, children: folder ? childrenOf(id) : [] });
  const top = byFolder.get("/mnt/user-data");
  if (top?.isPending === true) return <Skeleton label="Files are loading" />;
  if (top?.isError === true) return <Failure error={top.error} what="The files cannot be listed" />;
  const items = roots.map((r) => node(r, r, true, ""));
  const cut = lists.some((l) => l.data?.truncated);
  return (
    <>
      <Tree
        aria-label="Files of the thread"
        className="tree"
        items={items}
        selectionMode="single"
        selectionBehavior="replace"
        disallowEmptySelection
        selectedKeys={selected === undefined ? [] : [selected]}
        onSelectionChange={(keys) => {
          const [key] = keys === "all" ? [] : [...keys];
          if (key !== undefined) onSelect(String(key));
        }}
        expandedKeys={opened}
        onExpandedChange={(keys: Set<Key>) => setOpened(new Set([...keys].map(String)))}
      >
        {(item) => <Item node={item} />}
      </Tree>
      {cut && <p className="note">A folder has more files than are shown.</p>}
    </>
  );
}

function Item({ node }: { node: Node }) {
  return (
    <TreeItem id={node.id} textValue={node.name} isDisabled={node.kind === "note"} className="tree-item">
      <TreeItemContent>
        {({ isExpanded, level }) => (
          <div className="tree-line" style={{ paddingInlineStart: `${(level - 1) * 16}px` }}>
            {node.kind === "folder" ? (
              <Button slot="chevron" className="chevron" data-open={isExpanded ? "" : undefined}>
                <svg viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
                  <path d="m3 1 4 4-4 4" fill="none" stroke="currentColor" strokeWidth="1.5" />
                </svg>
              </Button>
            ) : (
              <span className="chevron" />
            )}
            <bdi className={`tree-${node.kind}`}>{node.name}</bdi>
            <span className="muted num tree-size">{node.size}</span>
          </div>
        )}
      </TreeItemContent>
      <Collection items={node.children}>{(child: Node) => <Item node={child} />}</Collection>
    </TreeItem>
  );
}
