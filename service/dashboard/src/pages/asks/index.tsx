import { Page } from "../../app/Page";
import AskList from "./AskList";

/** Asks of every search, or of the one that `?search=` names. */
export default function AsksPage() {
  return (
    <Page title="Asks">
      <AskList />
    </Page>
  );
}
