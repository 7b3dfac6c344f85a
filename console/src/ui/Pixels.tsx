import { useEffect, useState } from "react";
import { rasterType } from "../pages/thread/files/raster";
import { bytes } from "./format";

const mostEncoded = 12 << 20;

/** Bytes of base64, or undefined where it is none or too much. */
function decoded(base64: string): Uint8Array<ArrayBuffer> | undefined {
  if (base64.length > mostEncoded) return undefined;
  try {
    return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}

/** An image of pixels by its first bytes. What a server says of its type counts for nothing. */
export function Pixels({ base64, name }: { base64: string; name: string }) {
  const [url, setUrl] = useState<string | null>();
  useEffect(() => {
    const raw = decoded(base64);
    const type = raw === undefined ? undefined : rasterType(raw.subarray(0, 16));
    if (raw === undefined || type === undefined) {
      setUrl(null);
      return undefined;
    }
    const made = URL.createObjectURL(new Blob([raw], { type }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [base64]);
  if (url === undefined) return null;
  if (url === null) return <p className="note">{bytes(Math.floor((base64.length * 3) / 4))} that say they are an image, and are no image of pixels. They are not shown.</p>;
  return (
    <div className="picture">
      <img src={url} alt={name} onError={() => setUrl(null)} />
    </div>
  );
}
