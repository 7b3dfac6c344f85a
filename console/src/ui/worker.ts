/** Asks a worker once, and ends it: a text of a stranger can keep a parser busy. Undefined: it failed, or took too long. */
export function ask<Answer>(worker: Worker, message: unknown, patienceMs: number, done: (answer: Answer | undefined) => void): () => void {
  const end = (answer: Answer | undefined) => {
    clearTimeout(timer);
    worker.terminate();
    done(answer);
  };
  const timer = setTimeout(() => end(undefined), patienceMs);
  worker.onmessage = (e: MessageEvent<Answer>) => end(e.data);
  worker.onerror = (e) => {
    e.preventDefault();
    end(undefined);
  };
  worker.postMessage(message);
  return () => {
    clearTimeout(timer);
    worker.terminate();
  };
}
