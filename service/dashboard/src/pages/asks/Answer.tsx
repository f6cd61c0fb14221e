import { type KeyboardEvent, useEffect, useState } from "react";
import { useNavigate } from "react-router";
import { asProblem, type ProblemError } from "../../api/problem";
import { type AskDocument, useAnswerAsk } from "../../api/queries";
import { useSession } from "../../api/session";
import {
  Button,
  Card,
  Code,
  Editor,
  EmptyState,
  ErrorNotice,
  Field,
  TextInput,
  Time,
  Untrusted,
  useToast,
} from "../../design";
import styles from "./Asks.module.css";
import { dropDraft, readDraft, readName, writeDraft, writeName } from "./draft";
import { complaintAbout, isUsable, kindOf, replyOf } from "./kinds";
import { Upload } from "./Upload";

/** The answer that was given, or the form that gives one. */
export function Answer({ ask }: { ask: AskDocument }) {
  const [text, setText] = useState(() => readDraft(ask.id)?.text ?? "");
  const [kept, setKept] = useState(true);
  const tell = useAnswerAsk(ask.id);
  const problem = tell.isError ? asProblem(tell.error) : null;
  const closed = problem?.type.endsWith(":ask-closed") ? problem : null;

  function change(next: string) {
    setText(next);
    setKept(writeDraft(ask.id, next));
  }

  if (ask.state !== "open" || closed) return <Closed ask={ask} problem={closed} draft={text} />;
  return (
    <Card title="Answer">
      <Form ask={ask} text={text} onChange={change} tell={tell} />
      {!kept && (
        <p className={styles.aside}>
          The browser does not keep the draft. Copy it before you leave the page.
        </p>
      )}
      {problem && (
        <ErrorNotice
          error={problem}
          what="The answer was not taken"
          safe="Your draft is kept; send it again."
        />
      )}
    </Card>
  );
}

interface FormProps {
  ask: AskDocument;
  text: string;
  onChange: (text: string) => void;
  tell: ReturnType<typeof useAnswerAsk>;
}

function Form({ ask, text, onChange, tell }: FormProps) {
  const kind = kindOf(ask.kind);
  const toast = useToast();
  const { data: session } = useSession();
  const [name, setName] = useState(readName);
  const complaint = complaintAbout(ask.kind, text);
  const ready = text.trim() !== "" && !tell.isPending;

  useEffect(() => {
    if (session?.name && readName() === "") setName(session.name);
  }, [session?.name]);

  function send() {
    if (!ready) return;
    writeName(name);
    tell.mutate(
      { reply: replyOf(ask.kind, text), answered_by: name.trim() || "unnamed" },
      {
        onSuccess: () => {
          dropDraft(ask.id);
          toast("Answered: what becomes of it is shown below");
        },
      },
    );
  }

  function onKeyDown(event: KeyboardEvent) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    event.stopPropagation();
    send();
  }

  return (
    <>
      <p className={styles.aside}>{kind.form}</p>
      <div onKeyDownCapture={onKeyDown}>
        <Editor label="Answer" language={kind.language} value={text} onChange={onChange} lines={20} />
      </div>
      {complaint && <p className={styles.complaint}>{complaint} The service may refuse it and ask again.</p>}
      <div className={styles.send}>
        <Field label="Answered by" hint="Stands beside the answer, in the search's record">
          <TextInput
            value={name}
            maxLength={128}
            placeholder="unnamed"
            onChange={({ currentTarget: { value } }) => setName(value)}
          />
        </Field>
        <div className={styles.buttons}>
          <Upload onText={onChange} />
          <Button kind="primary" busy={tell.isPending} disabled={!ready} onClick={send} title="Ctrl + Enter">
            Send the answer
          </Button>
        </div>
      </div>
      <p className={styles.aside}>The draft is kept in this browser until it is sent.</p>
    </>
  );
}

/** Why no answer is taken here, in words, and where one is. */
function Closed({ ask, problem, draft }: { ask: AskDocument; problem: ProblemError | null; draft: string }) {
  const by = problem?.document.answered_by ?? ask.answered_by;
  const at = problem?.document.answered_at ?? ask.answered_at;
  const next = problem?.document.replaced_by ?? ask.replaced_by;
  const unsent = draft !== "" && replyOf(ask.kind, draft) !== ask.reply;
  return (
    <Card title="Answer">
      {problem && (
        <ErrorNotice
          error={problem}
          what="The answer was not taken: this ask is closed"
          safe={unsent && "What you wrote is kept below."}
        />
      )}
      {by !== null && by !== undefined ? (
        <p>
          <Untrusted text={by} /> answered <Time at={at} />.{" "}
          {ask.state === "withdrawn" ? DROPPED : isUsable(ask) && "That answer counts."}
        </p>
      ) : (
        <p>{WHY[ask.state] ?? "This ask takes no answer any more."}</p>
      )}
      {next && <Replaced to={next} draft={draft} />}
      {ask.reply !== null && <Code code={ask.reply} label="The answer that was given" numbers={false} wrap />}
      {unsent && (
        <>
          <h3>What you wrote</h3>
          <Code code={draft} label="What you wrote" numbers={false} wrap />
        </>
      )}
    </Card>
  );
}

// An answer is withdrawn where the search paused because none of the latest could be read.
const DROPPED = "It is not used: none of the latest answers could be read, and the request starts over.";

const WHY: Readonly<Record<string, string>> = {
  expired: "No answer came in time. Nothing is lost: the same request was asked again.",
  withdrawn: "The search ended first, or the answer could not be read and the request started over.",
  open: "This ask takes no answer any more.",
};

function Replaced({ to, draft }: { to: string; draft: string }) {
  const navigate = useNavigate();
  function go() {
    if (draft && !readDraft(to)) writeDraft(to, draft);
    void navigate(`/asks/${encodeURIComponent(to)}`);
  }
  return (
    <EmptyState
      title="It is asked again"
      action={<Button onClick={go}>{draft ? "Take the draft to the new ask" : "Open the new ask"}</Button>}
    />
  );
}
