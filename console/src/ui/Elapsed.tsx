import { useEffect, useState } from "react";
import { duration } from "./format";

/** How long something has been under way. */
export function Elapsed() {
  const [began] = useState(() => performance.now());
  const [now, setNow] = useState(began);
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 500);
    return () => clearInterval(timer);
  }, []);
  return <span className="num">{duration(now - began)}</span>;
}
