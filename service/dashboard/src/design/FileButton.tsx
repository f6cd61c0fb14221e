import { type ChangeEvent, type ReactNode, useRef } from "react";
import { Button } from "./Button";

interface FileButtonProps {
  /** What the file is: "A spec's file". */
  label: string;
  accept?: string;
  busy?: boolean;
  onFile: (file: File) => void;
  children: ReactNode;
}

/** Chooses one file of this machine; the same one may be chosen again. */
export function FileButton({ label, accept, busy = false, onFile, children }: FileButtonProps) {
  const input = useRef<HTMLInputElement>(null);

  function take({ currentTarget }: ChangeEvent<HTMLInputElement>) {
    const file = currentTarget.files?.[0];
    currentTarget.value = "";
    if (file) onFile(file);
  }

  return (
    <>
      <input ref={input} type="file" accept={accept} hidden aria-label={label} onChange={take} />
      <Button busy={busy} onClick={() => input.current?.click()}>
        {children}
      </Button>
    </>
  );
}
