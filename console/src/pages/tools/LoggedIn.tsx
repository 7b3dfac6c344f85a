import { useEffect, useState } from "react";
import { Mark } from "../../shell/Mark";
import { useTitle } from "../../ui/title";
import { handOver } from "./handover";
import { arrivedAt } from "./route";

const patienceMs = 2_000;

/** What a person sees who comes back from a login at an MCP server. */
export function LoggedIn() {
  useTitle("Login");
  const [taken, setTaken] = useState(false);
  const [alone, setAlone] = useState(false);
  useEffect(() => {
    // The code is good once. It need not stay in the address.
    history.replaceState(history.state, "", "/ui/tools/login");
    const timer = setTimeout(() => setAlone(true), patienceMs);
    const end = handOver(arrivedAt, () => setTaken(true));
    return () => {
      clearTimeout(timer);
      end();
    };
  }, []);
  return (
    <main className="alone">
      <h1>
        <Mark /> Login
      </h1>
      {taken ? (
        <p role="status">The page of Skerry that you came from goes on with the login. You may close this tab.</p>
      ) : alone ? (
        <>
          <p role="status">No page of Skerry waits for this login. If it is open in another browser, copy this address there, within ten minutes:</p>
          <pre className="snippet" tabIndex={0} role="region" aria-label="The address">
            {arrivedAt}
          </pre>
        </>
      ) : (
        <p role="status">Looking for the page that waits…</p>
      )}
    </main>
  );
}
