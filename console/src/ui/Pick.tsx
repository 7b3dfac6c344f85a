import { FileTrigger } from "react-aria-components/FileTrigger";
import { Button } from "./Button";

/** A button that takes one file of this machine. */
export function Pick({ label, types, isDisabled, onPick }: { label: string; types: string[]; isDisabled: boolean; onPick: (file: File) => void }) {
  return (
    <FileTrigger acceptedFileTypes={types} onSelect={(list) => list?.[0] !== undefined && onPick(list[0])}>
      <Button isDisabled={isDisabled}>{label}</Button>
    </FileTrigger>
  );
}
