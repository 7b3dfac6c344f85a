import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Xterm, type ITheme } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import type { Terminal } from "@skerry/client";
import { useEffect, useRef, useState } from "react";
import { session } from "../../session/session";
import { allowStyles } from "../../ui/csp";
import { Failure } from "../../ui/Failure";

allowStyles();

interface Props {
  thread: string;
  exec: string;
  onEnd: (exec: string, how: string) => void;
}

function colours(): ITheme {
  const style = getComputedStyle(document.documentElement);
  const probe = document.createElement("span");
  document.body.append(probe);
  const of = (name: string) => {
    probe.style.color = style.getPropertyValue(name);
    return getComputedStyle(probe).color;
  };
  const theme: ITheme = { background: of("--well"), foreground: of("--text"), cursor: of("--accent"), cursorAccent: of("--well"), selectionBackground: of("--select") };
  probe.remove();
  return theme;
}

export default function Screen({ thread, exec, onEnd }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    const host = box.current;
    if (host === null) return;
    const stop = new AbortController();
    const term = new Xterm({
      fontFamily: getComputedStyle(host).fontFamily,
      fontSize: 13,
      scrollback: 5_000,
      cursorBlink: false,
      theme: colours(),
      minimumContrastRatio: 4.5,
      // Links of programs are not followed: their text may say another address than they have.
      linkHandler: { activate: () => undefined },
    });
    const fit = new FitAddon();
    term.loadAddon(fit);
    term.open(host);
    fit.fit();
    term.attachCustomKeyEventHandler((e) => {
      if (!(e.key === "Escape" && e.shiftKey)) return true;
      if (e.type === "keydown") host.closest("section")?.querySelector<HTMLElement>(".terminal-bar button")?.focus();
      return false;
    });
    const paint = () => (term.options.theme = colours());
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", paint);
    window.addEventListener("skerry-theme", paint);
    let joined: Terminal | undefined;
    const sized = new ResizeObserver(() => {
      fit.fit();
    });
    sized.observe(host);
    term.onResize(({ cols, rows }) => joined?.resize(cols, rows));
    term.onData((data) => joined?.write(data));
    term.onBinary((data) => joined?.write(Uint8Array.from(data, (c) => c.charCodeAt(0))));
    const join = async (after: number): Promise<void> => {
      const by = session.client;
      try {
        joined = await by.thread(thread).execById(exec).terminal(after, { signal: stop.signal });
        joined.resize(term.cols, term.rows);
        if (after === 0) term.focus();
        for await (const bytes of joined) await new Promise<void>((taken) => term.write(bytes, taken));
        const { exit } = joined;
        onEnd(exec, exit?.status === "exited" ? `It ended with exit ${exit.exit_code ?? "?"}.` : `It ended: ${exit?.status ?? "lost"}.`);
      } catch (err) {
        if (stop.signal.aborted) return;
        // A socket does not say what ended it: when the token is another one by now, it is that.
        await session.renew();
        if (joined !== undefined && session.client !== by) return join(joined.next - 1);
        setError(err);
      }
    };
    void join(0);
    return () => {
      stop.abort();
      joined?.close();
      sized.disconnect();
      dark.removeEventListener("change", paint);
      window.removeEventListener("skerry-theme", paint);
      term.dispose();
    };
  }, [thread, exec, onEnd]);
  return (
    <>
      {error !== undefined && <Failure error={error} what="The terminal cannot be joined" />}
      <div className="screen" ref={box} />
    </>
  );
}
