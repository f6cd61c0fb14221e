import { FileButton, useToast, visible } from "../../design";

const MOST = 1_000_000;

/** A file from this machine as the answer's text. */
export function Upload({ onText }: { onText: (text: string) => void }) {
  const toast = useToast();

  async function read(file: File) {
    if (file.size > MOST) return refuse(file, `is larger than ${MOST.toLocaleString("en-GB")} bytes`);
    const text = await file.text();
    if (text.includes("\0")) return refuse(file, "is no text");
    onText(text);
  }

  function refuse(file: File, why: string) {
    toast(`${visible(file.name)} ${why}. The draft is as it was.`, { bad: true });
  }

  return (
    <FileButton label="A file as the answer" onFile={(file) => void read(file)}>
      From a file
    </FileButton>
  );
}
