import { useEffect } from "react";
import { useLocation } from "react-router";
import { Skeleton } from "../design";

interface LeaveProps {
  /** The file of another page. */
  to: string;
  go?: (address: string) => void;
}

/**
 * Goes to a page that is a file of its own: one comes here from the login alone.
 *
 * By the file's name, and not by loading this address again: where the file is not built, or the development server
 * answers, this page would come back and load itself for ever.
 */
export function Leave({ to, go = (address) => location.replace(address) }: LeaveProps) {
  const { search, hash } = useLocation();
  useEffect(() => go(to + search + hash), [go, to, search, hash]);
  return <Skeleton lines={6} />;
}
