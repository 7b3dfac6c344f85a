import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { FileEntry } from "@skerry/client";
import { Ask } from "../../../ui/Ask";
import { Confirm } from "../../../ui/Confirm";
import { Failure } from "../../../ui/Failure";
import type { Owned } from "../owned";

/** Renames or deletes a file or folder. `onGone` is called with its new path. */
export function Change({ owned, entry, onGone }: { owned: Owned; entry: FileEntry; onGone: (path: string | undefined) => void }) {
  const known = useQueryClient();
  const { files } = owned.thread;
  const renew = () => known.invalidateQueries({ queryKey: [...owned.known, "files"] });
  const remove = useMutation({
    mutationFn: () => files.remove(entry.path, { recursive: entry.is_dir }),
    onSuccess: () => {
      onGone(undefined);
      return renew();
    },
  });
  const what = entry.is_dir ? "folder" : "file";
  return (
    <>
      <Ask
        label="Rename…"
        title={`Rename the ${what}`}
        field="New path"
        value={entry.path}
        yes="Rename"
        onDone={async (to) => {
          const moved = await files.move(entry.path, to);
          onGone(moved.path);
          await renew();
        }}
      />
      <Confirm label="Delete…" title={`Delete the ${what}?`} yes={`Delete ${what}`} isDisabled={remove.isPending} onConfirm={() => remove.mutate()}>
        <p>
          <bdi>{entry.path}</bdi> {entry.is_dir ? "and all that is in it are" : "is"} gone then. Nothing brings {entry.is_dir ? "them" : "it"} back.
        </p>
      </Confirm>
      {remove.isError && <Failure error={remove.error} what={`The ${what} cannot be deleted`} />}
    </>
  );
}
