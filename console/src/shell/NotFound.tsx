import { Link } from "@tanstack/react-router";
import { Empty } from "../ui/Empty";

export function NotFound() {
  return (
    <main className="alone">
      <Empty title="There is no such page" level="h1">
        <p>
          The address may be mistyped. <Link to="/">Go to the first page</Link>
        </p>
      </Empty>
    </main>
  );
}
