export type Theme = "system" | "light" | "dark";

const kept = "skerry.theme";

export function theme(): Theme {
  const t = localStorage.getItem(kept);
  return t === "light" || t === "dark" ? t : "system";
}

/** Colours are light-dark() in base.css, so that one attribute changes all of them. */
export function applyTheme(): void {
  document.documentElement.dataset["theme"] = theme();
}

export function setTheme(t: Theme): void {
  localStorage.setItem(kept, t);
  applyTheme();
  window.dispatchEvent(new Event("skerry-theme"));
}
