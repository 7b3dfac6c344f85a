import { usePrincipal } from "../session/session";
import { Empty } from "../ui/Empty";

/** For a role that may read none of the pages. */
export function NoPages() {
  const { role } = usePrincipal();
  return (
    <Empty title={`The role ${role} has no page here`} level="h1">
      <p>
        Its key is good for the audit log: <code>skerry audit tail</code>, or <code>GET /api/audit</code>.
      </p>
    </Empty>
  );
}
