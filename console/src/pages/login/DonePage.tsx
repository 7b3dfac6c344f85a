import { Link, useRouter } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { finish } from "../../session/oidc";
import { Mark } from "../../shell/Mark";
import { Failure } from "../../ui/Failure";
import { useTitle } from "../../ui/title";
import { arrivedAt } from "../tools/route";

// A page is loaded once for each answer of a provider, whose code is good once.
let finishing: Promise<string> | undefined;

/** Ends a login at an identity provider, and goes on to where the person wanted to be. */
export function DonePage() {
  useTitle("Log in");
  const router = useRouter();
  const [failed, setFailed] = useState<unknown>();
  useEffect(() => {
    let here = true;
    history.replaceState(history.state, "", "/ui/login/done"); // the code need not stay in the address
    finishing ??= finish(arrivedAt);
    finishing.then(
      (next) => here && router.history.replace(`/ui${next}`),
      (err: unknown) => here && setFailed(err),
    );
    return () => {
      here = false;
    };
  }, [router]);
  return (
    <main className="alone">
      <h1>
        <Mark /> Log in
      </h1>
      {failed === undefined ? (
        <p role="status">Logging in…</p>
      ) : (
        <>
          <Failure error={failed} what="You are not logged in" />
          <Link to="/login" search={{}}>
            Log in again
          </Link>
        </>
      )}
    </main>
  );
}
