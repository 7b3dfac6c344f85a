let allowed = false;

/** What elements of style need under the policy of this page. */
export function nonceOf(): string {
  return document.querySelector<HTMLMetaElement>("meta[property=csp-nonce]")?.nonce ?? "";
}

/**
 * Lets a library style what it makes, under the policy of this page. Its elements of style get the nonce, and its attributes of
 * style become properties, which the policy allows. What comes as HTML never passes here, so the policy still refuses it.
 *
 * xterm has an option for a document of its own, and yet makes some elements with the one of the page.
 */
export function allowStyles(): void {
  if (allowed) return;
  allowed = true;
  const nonce = nonceOf();
  const create = document.createElement.bind(document) as (tag: string, options?: ElementCreationOptions) => HTMLElement;
  document.createElement = ((tag: string, options?: ElementCreationOptions) => {
    const made = create(tag, options);
    if (made instanceof HTMLStyleElement) made.nonce = nonce;
    const set = made.setAttribute.bind(made);
    made.setAttribute = (name: string, value: string) => {
      if (name === "style") made.style.cssText = value;
      else set(name, value);
    };
    return made;
  }) as typeof document.createElement;
}
