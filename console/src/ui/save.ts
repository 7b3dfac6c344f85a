/** Hands the person a file. It is a download, whatever is in it: the page shows none of it. */
export function save(content: Blob | string, name: string): void {
  const url = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  const a = document.createElement("a");
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
