import { Switch as AriaSwitch } from "react-aria-components/Switch";

/** On or off, at once. It is never disabled while a change is under way: it would lose the focus. */
export function Switch({ label, isSelected, onChange }: { label: string; isSelected: boolean; onChange: (on: boolean) => void }) {
  return (
    <AriaSwitch className="switch" isSelected={isSelected} onChange={onChange}>
      <span className="switch-track" aria-hidden="true">
        <span />
      </span>
      {label}
    </AriaSwitch>
  );
}
