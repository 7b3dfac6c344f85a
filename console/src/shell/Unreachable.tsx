import { useRouter } from "@tanstack/react-router";
import { Button } from "../ui/Button";
import { Failure } from "../ui/Failure";

/** In place of a page that could not even begin: the server does not answer, say. */
export function Unreachable({ error, reset }: { error: unknown; reset: () => void }) {
  const router = useRouter();
  return (
    <main className="alone">
      <h1 className="away">Skerry</h1>
      <Failure error={error} what="The console cannot reach its server" />
      <Button
        onPress={() => {
          reset();
          void router.invalidate();
        }}
      >
        Try again
      </Button>
    </main>
  );
}
