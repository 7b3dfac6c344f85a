import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import type { FileEntry } from "@skerry/client";
import { AnnotationMode, getDocument, PDFWorker, RenderingCancelledException, type PDFDocumentProxy } from "pdfjs-dist";
import ParserThread from "pdfjs-dist/build/pdf.worker.mjs?worker";
import { useEffect, useRef, useState } from "react";
import { Empty } from "../../../ui/Empty";
import { Failure } from "../../../ui/Failure";
import { bytes } from "../../../ui/format";
import { Skeleton } from "../../../ui/Skeleton";
import type { Owned } from "../owned";
import { beginOf } from "./bytes";

const mostBytes = 32 << 20;
const mostPixels = 4 << 20; // of a page
const mostWords = 20_000; // characters of a page, for screen readers
const gap = 12;

/** A PDF as pictures of its pages. Scripts, forms, links and files in it are left out. */
export default function PdfPreview({ owned, entry }: { owned: Owned; entry: FileEntry }) {
  const raw = useQuery({
    queryKey: ["preview", ...owned.known, "pdf", entry.path, entry.modified_at],
    queryFn: ({ signal }) => beginOf(owned, entry.path, mostBytes, signal),
    enabled: entry.bytes <= mostBytes,
    staleTime: Infinity,
    gcTime: 60_000,
    structuralSharing: false,
  });
  const [doc, setDoc] = useState<PDFDocumentProxy>();
  const [error, setError] = useState<unknown>();
  const data = raw.data;
  useEffect(() => {
    if (data === undefined) return undefined;
    setDoc(undefined);
    setError(undefined);
    const thread = new ParserThread();
    const worker = PDFWorker.create({ port: thread });
    const task = getDocument({ data: data.slice(), worker, enableXfa: false, useWasm: false, useSystemFonts: true, maxImageSize: 32 << 20, stopAtErrors: false, verbosity: 0 });
    let gone = false;
    task.promise.then(
      (d) => gone || setDoc(d),
      (err: unknown) => gone || setError(err),
    );
    return () => {
      gone = true;
      void task.destroy().finally(() => {
        worker.destroy();
        thread.terminate();
      });
    };
  }, [data]);
  if (entry.bytes > mostBytes) return <Empty title="This file is too large to be shown"><p>It has {bytes(entry.bytes)}. Download it to look at it.</p></Empty>;
  if (raw.isError) return <Failure error={raw.error} what="The file cannot be shown" />;
  if (error !== undefined) return <Empty title="This file cannot be shown"><p>It is broken, is no PDF, or wants a password.</p></Empty>;
  return doc === undefined ? <Skeleton rows={8} label="The file is loading" /> : <Pages doc={doc} />;
}

function Pages({ doc }: { doc: PDFDocumentProxy }) {
  const scroller = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  // Height by width, of the first page: most documents have pages of one size, and others are measured.
  const [shape, setShape] = useState(1.414);
  useEffect(() => {
    const box = scroller.current;
    if (box === null) return undefined;
    const sized = new ResizeObserver(() => setWidth(Math.max(box.clientWidth - 2 * gap, 64)));
    sized.observe(box);
    void doc.getPage(1).then((p) => {
      const v = p.getViewport({ scale: 1 });
      setShape(v.height / v.width);
    }, () => undefined);
    return () => sized.disconnect();
  }, [doc]);
  const virtual = useVirtualizer({ count: width === 0 ? 0 : doc.numPages, getScrollElement: () => scroller.current, estimateSize: () => width * shape + gap, overscan: 1 });
  useEffect(() => virtual.measure(), [virtual, width, shape]);
  return (
    <>
      <div className="pdf" ref={scroller} tabIndex={0} role="region" aria-label="Pages">
        <div className="pdf-body" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((v) => (
            <div key={v.key} ref={virtual.measureElement} data-index={v.index} className="pdf-page" style={{ position: "absolute", insetInline: gap, transform: `translateY(${v.start}px)`, paddingBottom: gap }}>
              <Page doc={doc} n={v.index + 1} width={width} height={width * shape} />
            </div>
          ))}
        </div>
      </div>
      <p className="hint num">
        {doc.numPages} {doc.numPages === 1 ? "page" : "pages"}. Links, forms and scripts of the file do not work here.
      </p>
    </>
  );
}

function Page({ doc, n, width, height }: { doc: PDFDocumentProxy; n: number; width: number; height: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [words, setWords] = useState("");
  const [error, setError] = useState(false);
  useEffect(() => {
    let end = () => undefined as void;
    let gone = false;
    void (async () => {
      try {
        const page = await doc.getPage(n);
        const target = canvas.current;
        if (gone || target === null) return;
        const one = page.getViewport({ scale: 1 });
        const wanted = (width / one.width) * Math.min(devicePixelRatio, 2);
        const viewport = page.getViewport({ scale: Math.min(wanted, Math.sqrt(mostPixels / (one.width * one.height))) });
        target.width = Math.ceil(viewport.width);
        target.height = Math.ceil(viewport.height);
        target.style.aspectRatio = `${one.width} / ${one.height}`;
        const task = page.render({ canvas: target, viewport, annotationMode: AnnotationMode.DISABLE });
        end = () => task.cancel();
        await task.promise;
        const { items } = await page.getTextContent();
        if (!gone) setWords(items.map((i) => ("str" in i ? i.str + (i.hasEOL ? "\n" : "") : "")).join("").slice(0, mostWords));
      } catch (err) {
        if (!gone && !(err instanceof RenderingCancelledException)) setError(true);
      }
    })();
    return () => {
      gone = true;
      end();
    };
  }, [doc, n, width]);
  if (error) return <p className="note">Page {n} is broken.</p>;
  return (
    <>
      <canvas ref={canvas} role="img" aria-label={`Page ${n}`} style={{ width: "100%", minHeight: words === "" ? height : undefined }} />
      <p className="away">{words}</p>
    </>
  );
}
