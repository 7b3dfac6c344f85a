import { Dialog, DialogTrigger, Heading } from "react-aria-components/Dialog";
import { Modal, ModalOverlay } from "react-aria-components/Modal";
import type { ReactNode } from "react";
import { Button } from "./Button";

/** A button that asks before it does something that cannot be undone. */
export function Confirm({ label, title, children, yes, isDisabled, onConfirm }: { label: string; title: string; children: ReactNode; yes: string; isDisabled?: boolean; onConfirm: () => void }) {
  return (
    <DialogTrigger>
      <Button kind="danger" isDisabled={isDisabled ?? false}>
        {label}
      </Button>
      <ModalOverlay className="overlay" isDismissable>
        <Modal className="modal">
          <Dialog role="alertdialog" className="dialog">
            {({ close }) => (
              <>
                <Heading slot="title">{title}</Heading>
                {children}
                <div className="dialog-end">
                  <Button autoFocus onPress={close}>
                    Cancel
                  </Button>
                  <Button
                    kind="danger"
                    onPress={() => {
                      onConfirm();
                      close();
                    }}
                  >
                    {yes}
                  </Button>
                </div>
              </>
            )}
          </Dialog>
        </Modal>
      </ModalOverlay>
    </DialogTrigger>
  );
}
