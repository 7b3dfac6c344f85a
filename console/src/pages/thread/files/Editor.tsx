import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { search, searchKeymap } from "@codemirror/search";
import { EditorState, type Text } from "@codemirror/state";
import { EditorView, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useBlocker } from "@tanstack/react-router";
import { SkerryError } from "@skerry/client";
import { useEffect, useRef, useState, type RefObject } from "react";
import { Dialog, Heading } from "react-aria-components/Dialog";
import { Modal, ModalOverlay } from "react-aria-components/Modal";
import { session } from "../../../session/session";
import { Button } from "../../../ui/Button";
import { nonceOf } from "../../../ui/csp";
import { Diff } from "../../../ui/Diff";
import { Empty } from "../../../ui/Empty";
import { Failure } from "../../../ui/Failure";
import { Skeleton } from "../../../ui/Skeleton";
import type { Owned } from "../owned";
import { contentOf, mostEdited } from "./bytes";

const transferMs = 60_000;

/** A text as the server has it. Without a tag there is no such file. */
interface Version {
  text: string;
  tag: string | undefined;
}

class NoText extends Error {}

async function versionOf(owned: Owned, path: string, signal: AbortSignal): Promise<Version> {
  try {
    const answer = await session.open({ method: "GET", ...contentOf(owned, path) }, AbortSignal.any([signal, AbortSignal.timeout(transferMs)]), owned.of);
    if (Number(answer.headers.get("content-length") ?? 0) > mostEdited) throw new NoText("It is too large to be edited here.");
    const raw = new Uint8Array(await answer.arrayBuffer());
    // A mark of the order of bytes is part of the text: it is saved as it came.
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw), tag: answer.headers.get("etag") ?? undefined };
  } catch (err) {
    if (err instanceof SkerryError && err.status === 404) return { text: "", tag: undefined };
    throw err instanceof TypeError && /decod|encod/i.test(err.message) ? new NoText("It is no text in UTF-8.") : err;
  }
}

/** Saves a text in place of the version that it was made of. Another version in its place is an error 412, and stays. */
async function put(owned: Owned, path: string, text: string, { tag }: Version): Promise<void> {
  const headers: Record<string, string> = tag === undefined ? { "If-None-Match": "*" } : { "If-Match": tag };
  await session.open({ method: "PUT", ...contentOf(owned, path), content: text, headers, kind: "once" }, AbortSignal.timeout(transferMs), owned.of);
}

const theme = EditorView.theme({
  "&": { height: "100%", fontSize: "12.5px", color: "var(--text)", backgroundColor: "var(--well)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--well)", color: "var(--muted)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine": { backgroundColor: "color-mix(in oklab, var(--accent) 7%, transparent)" },
  ".cm-specialChar": { color: "var(--bad)" },
  ".cm-panels": { backgroundColor: "var(--panel)", color: "var(--text)", borderColor: "var(--line)" },
  ".cm-textfield, .cm-button": { backgroundColor: "var(--panel)", backgroundImage: "none", color: "var(--text)", border: "1px solid var(--line-strong)" },
  ".cm-searchMatch": { backgroundColor: "color-mix(in oklab, var(--idle) 30%, transparent)" },
});

/** A text file that is edited. Nothing is saved before its changes were shown, and nothing that somebody else saved is lost. */
export default function Editor({ owned, path }: { owned: Owned; path: string }) {
  const known = useQueryClient();
  const [base, setBase] = useState<Version>();
  const [failed, setFailed] = useState<unknown>();
  const [dirty, setDirty] = useState(false);
  /** The text whose changes are looked at before they are saved. */
  const [review, setReview] = useState<string>();
  const [newer, setNewer] = useState(false);
  const view = useRef<EditorView>(undefined);
  useEffect(() => {
    const stop = new AbortController();
    versionOf(owned, path, stop.signal).then(setBase, (err: unknown) => {
      if (!stop.signal.aborted) setFailed(err);
    });
    return () => stop.abort();
  }, [owned, path]);
  const save = useMutation({
    mutationFn: async (text: string) => {
      if (base === undefined) return;
      try {
        await put(owned, path, text, base);
      } catch (err) {
        // Another version, or an answer that was lost on its way: the server knows.
        if (!(err instanceof SkerryError && err.status === 412)) throw err;
      }
      const now = await versionOf(owned, path, AbortSignal.timeout(transferMs));
      setBase(now);
      const saved = now.text === text;
      setNewer(!saved);
      setDirty(!saved);
      if (saved) setReview(undefined);
    },
    onSettled: () => known.invalidateQueries({ queryKey: [...owned.known, "files"] }),
  });
  const leaving = useBlocker({ shouldBlockFn: () => dirty, enableBeforeUnload: () => dirty, withResolver: true });
  const look = () => {
    const state = view.current?.state;
    if (state !== undefined) setReview(state.sliceDoc());
  };
  if (failed instanceof NoText) return <Empty title="This file cannot be edited here"><p>{failed.message}</p></Empty>;
  if (failed !== undefined) return <Failure error={failed} what="The file cannot be read" />;
  if (base === undefined) return <Skeleton rows={8} label="The text is loading" />;
  return (
    <section className="editor" aria-label="Editor">
      <div className="line">
        {review === undefined ? (
          <Button kind="primary" isDisabled={!dirty} onPress={look}>
            Review changes
          </Button>
        ) : (
          <>
            <Button kind="primary" isDisabled={save.isPending} onPress={() => save.mutate(review)}>
              {save.isPending ? "Saving…" : newer ? "Save over the newer version" : "Save"}
            </Button>
            <Button onPress={() => setReview(undefined)}>Back to the text</Button>
          </>
        )}
        <Link to="/threads/$thread/files" params={{ thread: owned.thread.id }} search={{ path }} className="button">
          Close
        </Link>
        <span role="status" className="muted">
          {dirty ? "Not saved yet" : save.isSuccess ? "Saved" : ""}
        </span>
      </div>
      {save.isError && <Failure error={save.error} what="The file cannot be saved" />}
      {newer && (
        <p className="failure" role="alert">
          {base.tag === undefined ? "Somebody deleted the file meanwhile." : "Somebody else saved the file meanwhile."} Nothing of yours was saved, and nothing of theirs is lost. Below, your text is compared with what is there now.
        </p>
      )}
      {review !== undefined && <Diff before={base.text} after={review} label="What will change" />}
      <Area key={path} base={base} hidden={review !== undefined} view={view} onChange={setDirty} onSave={look} />
      {leaving.status === "blocked" && <Leave stay={leaving.reset} leave={leaving.proceed} />}
    </section>
  );
}

function Area({ base, hidden, view, onChange, onSave }: { base: Version; hidden: boolean; view: RefObject<EditorView | undefined>; onChange: (dirty: boolean) => void; onSave: () => void }) {
  const host = useRef<HTMLDivElement>(null);
  const saved = useRef<Text>(undefined);
  const call = useRef({ onChange, onSave });
  call.current = { onChange, onSave };
  const first = useRef(base.text);
  useEffect(() => {
    if (host.current === null) return undefined;
    const text = first.current;
    // Lines end as they did, and a text with both ends keeps them.
    const ends = text.includes("\r\n") && !/(^|[^\r])\n/.test(text) ? "\r\n" : "\n";
    const state = EditorState.create({
      doc: text,
      extensions: [
        EditorState.lineSeparator.of(ends),
        EditorView.cspNonce.of(nonceOf()),
        theme,
        lineNumbers(),
        history(),
        search(),
        highlightSpecialChars(),
        highlightActiveLine(),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": "Text of the file" }),
        // Tab is not among them: it leaves the text, as it leaves any field.
        keymap.of([{ key: "Mod-s", run: () => (call.current.onSave(), true) }, ...defaultKeymap, ...historyKeymap, ...searchKeymap]),
        EditorView.updateListener.of((u) => {
          if (u.docChanged) call.current.onChange(saved.current === undefined || !u.state.doc.eq(saved.current));
        }),
      ],
    });
    const made = new EditorView({ state, parent: host.current });
    saved.current = made.state.doc;
    view.current = made;
    made.focus();
    return () => {
      view.current = undefined;
      made.destroy();
    };
  }, [view]);
  useEffect(() => {
    const state = view.current?.state;
    // What is compared with is another text after each save.
    if (state !== undefined) saved.current = state.sliceDoc() === base.text ? state.doc : undefined;
  }, [base, view]);
  return <div ref={host} className="editor-text" hidden={hidden} />;
}

function Leave({ stay, leave }: { stay: () => void; leave: () => void }) {
  return (
    <ModalOverlay className="overlay" isOpen isDismissable onOpenChange={(open) => !open && stay()}>
      <Modal className="modal">
        <Dialog role="alertdialog" className="dialog">
          <Heading slot="title">Leave without saving?</Heading>
          <p>Your changes of this file are not saved.</p>
          <div className="dialog-end">
            <Button autoFocus onPress={stay}>
              Stay
            </Button>
            <Button kind="danger" onPress={leave}>
              Leave
            </Button>
          </div>
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}
