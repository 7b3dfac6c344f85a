import { Checkbox as AriaCheckbox, type CheckboxProps } from "react-aria-components/Checkbox";
import { FieldError, Input, Label, TextField, type TextFieldProps } from "react-aria-components/TextField";

/** A line of text with its label. */
export function Field({ label, error, placeholder, hideLabel, ...props }: Omit<TextFieldProps, "children" | "className"> & { label: string; error?: string | undefined; placeholder?: string; hideLabel?: boolean }) {
  return (
    <TextField {...props} isInvalid={error !== undefined} className="field" validationBehavior="aria">
      <Label className={hideLabel === true ? "away" : "label"}>{label}</Label>
      <Input className="input" placeholder={placeholder} spellCheck="false" />
      <FieldError className="field-error">{error}</FieldError>
    </TextField>
  );
}

export function Checkbox({ children, ...props }: Omit<CheckboxProps, "className" | "children"> & { children: string }) {
  return (
    <AriaCheckbox {...props} className="checkbox">
      <span className="box" aria-hidden="true">
        <svg viewBox="0 0 12 12" width="12" height="12">
          <path d="m2 6.5 2.5 2.5L10 3.5" fill="none" stroke="currentColor" strokeWidth="2" />
        </svg>
      </span>
      {children}
    </AriaCheckbox>
  );
}
