import { createContext, type ReactNode, use, useCallback, useEffect, useRef, useState } from "react";
import { IconButton } from "./Button";
import { classes } from "./classes";
import styles from "./Toast.module.css";

const LASTS_MS = 6000;

interface Message {
  id: number;
  text: ReactNode;
  bad: boolean;
}

type Show = (text: ReactNode, options?: { bad?: boolean }) => void;

const ToastContext = createContext<Show>(() => {});

/** Shows a short message that goes by itself; what must be read belongs in the page. */
export function useToast(): Show {
  return use(ToastContext);
}

export function ToastProvider({ children }: { children: ReactNode }) {
  const [messages, setMessages] = useState<readonly Message[]>([]);
  const next = useRef(0);
  const show = useCallback<Show>((text, { bad = false } = {}) => {
    next.current += 1;
    const id = next.current;
    setMessages((now) => [...now.slice(-3), { id, text, bad }]);
  }, []);
  const drop = useCallback(
    (id: number) => setMessages((now) => now.filter((message) => message.id !== id)),
    [],
  );
  return (
    <ToastContext value={show}>
      {children}
      <div aria-live="polite" className={styles.stack}>
        {messages.map((message) => (
          <Toast key={message.id} message={message} onDrop={drop} />
        ))}
      </div>
    </ToastContext>
  );
}

function Toast({ message, onDrop }: { message: Message; onDrop: (id: number) => void }) {
  useEffect(() => {
    const timer = setTimeout(() => onDrop(message.id), LASTS_MS);
    return () => clearTimeout(timer);
  }, [message.id, onDrop]);
  return (
    <div className={classes(styles.toast, message.bad && styles.bad)}>
      <div>{message.text}</div>
      <IconButton label="Dismiss" icon="✕" onClick={() => onDrop(message.id)} />
    </div>
  );
}
