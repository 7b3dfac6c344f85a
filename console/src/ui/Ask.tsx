import { Dialog, DialogTrigger, Heading } from "react-aria-components/Dialog";
import { Modal, ModalOverlay } from "react-aria-components/Modal";
import { useState, type FormEvent } from "react";
import { Button } from "./Button";
import { messageOf } from "./Failure";
import { Field } from "./Field";

interface Props {
  label: string;
  title: string;
  field: string;
  value: string;
  yes: string;
  /** What is wrong with a value; the error of a promise is shown, too. */
  onDone: (value: string) => Promise<unknown>;
}

/** A button that asks for a line of text. The question stays open until what is asked for is done. */
export function Ask({ label, ...rest }: Props) {
  return (
    <DialogTrigger>
      <Button>{label}</Button>
      <ModalOverlay className="overlay" isDismissable>
        <Modal className="modal">
          <Dialog className="dialog">{({ close }) => <Question {...rest} close={close} />}</Dialog>
        </Modal>
      </ModalOverlay>
    </DialogTrigger>
  );
}

function Question({ title, field, value: first, yes, onDone, close }: Omit<Props, "label"> & { close: () => void }) {
  const [value, set] = useState(first);
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const submit = (e: FormEvent) => {
    e.preventDefault();
    setBusy(true);
    setError(undefined);
    onDone(value).then(close, (err: unknown) => {
      setError(messageOf(err));
      setBusy(false);
    });
  };
  return (
    <form className="ask" onSubmit={submit}>
      <Heading slot="title">{title}</Heading>
      <Field label={field} value={value} onChange={set} error={error} autoFocus maxLength={4096} />
      <div className="dialog-end">
        <Button onPress={close}>Cancel</Button>
        <Button kind="primary" type="submit" isDisabled={busy || value === "" || value === first}>
          {yes}
        </Button>
      </div>
    </form>
  );
}
