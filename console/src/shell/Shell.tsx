import { Link, Outlet, useLocation, useRouter } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { navOf } from "../pages";
import { session, usePrincipal } from "../session/session";
import { Button } from "../ui/Button";
import { Choice } from "../ui/Choice";
import { Mark } from "./Mark";
import { setTheme, theme, type Theme } from "./theme";

const themes: readonly { id: Theme; label: string }[] = [
  { id: "system", label: "System" },
  { id: "light", label: "Light" },
  { id: "dark", label: "Dark" },
];

/** What is around every page: its navigation, and who is logged in. */
export function Shell() {
  const me = usePrincipal();
  const router = useRouter();
  const [chosen, choose] = useState<Theme>(theme());
  const nav = navOf(me);
  const bar = useRef<HTMLElement>(null);
  const { pathname } = useLocation();
  // On a phone the entries are a line that scrolls.
  useEffect(() => bar.current?.querySelector('[data-status="active"]')?.scrollIntoView({ block: "nearest", inline: "nearest" }), [pathname]);
  const logout = () => {
    session.logout();
    void router.navigate({ to: "/login", search: {} });
  };
  return (
    <div className="shell">
      <a className="skip" href="#main">
        Skip to the page
      </a>
      <header className="bar">
        <Link to="/" className="brand">
          <Mark /> Skerry
        </Link>
        <nav aria-label="Pages" ref={bar}>
          {nav.map((n) => (
            <Link key={n.to} to={n.to} activeOptions={{ exact: false, includeSearch: false }}>
              {n.label}
            </Link>
          ))}
        </nav>
        <div className="bar-end">
          <span className="who" title={`Tenant ${me.tenant}`}>
            {me.user} <span className="role">{me.operator ? "operator" : me.role}</span>
          </span>
          <Choice
            label="Theme"
            value={chosen}
            options={themes}
            onChange={(t) => {
              setTheme(t);
              choose(t);
            }}
          />
          {me.method !== "none" && (
            <Button kind="quiet" onPress={logout}>
              Log out
            </Button>
          )}
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        <Outlet />
      </main>
    </div>
  );
}
