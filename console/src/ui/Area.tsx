import { useId } from "react";

/** Lines of text with their label, in the browser's own field: plain, and quick with long texts. Covered: it is not seen. */
export function Area({ label, value, onChange, rows = 8, error, hint, placeholder, maxLength, readOnly, covered }: { label: string; value: string; onChange: (v: string) => void; rows?: number; error?: string | undefined; hint?: string; placeholder?: string; maxLength?: number; readOnly?: boolean; covered?: boolean }) {
  const id = useId();
  const said = error ?? hint;
  return (
    <div className="field">
      <label className="label" htmlFor={id}>
        {label}
      </label>
      <textarea
        id={id}
        className={covered === true ? "input area covered" : "input area"}
        rows={rows}
        value={value}
        placeholder={placeholder}
        maxLength={maxLength}
        readOnly={readOnly}
        spellCheck={false}
        autoComplete="off"
        aria-invalid={error !== undefined}
        aria-describedby={said === undefined ? undefined : `${id}-said`}
        onChange={(e) => onChange(e.target.value)}
      />
      {said !== undefined && (
        <span id={`${id}-said`} className={error === undefined ? "hint" : "field-error"}>
          {said}
        </span>
      )}
    </div>
  );
}
