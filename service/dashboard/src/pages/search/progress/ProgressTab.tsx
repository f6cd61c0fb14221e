import { useAttempts, useProgress } from "../../../api/progress";
import { Loading } from "../../../app/Page";
import { Card, EmptyState } from "../../../design";
import { BestPlot } from "./BestPlot";
import { GatesPlot } from "./GatesPlot";
import styles from "./Progress.module.css";
import { WorkersPlot } from "./WorkersPlot";

/** How a search went so far: what it found when, where candidates fail, and who worked. */
export default function ProgressTab({ searchId }: { searchId: string }) {
  const progress = useProgress(searchId);
  const attempts = useAttempts(searchId);
  return (
    <div className={styles.stack}>
      <Loading query={progress}>
        {(data) =>
          data.judged.length === 0 && data.best.length === 0 ? (
            <EmptyState title="No candidate was judged yet">
              The best so far is drawn here from the first verdict on. The reasons why it waits are above.
            </EmptyState>
          ) : (
            <>
              <Card>
                <BestPlot progress={data} />
              </Card>
              <Card>
                <GatesPlot gates={data.gates} />
              </Card>
            </>
          )
        }
      </Loading>
      <Loading query={attempts}>
        {(data) => (
          <Card>
            <WorkersPlot attempts={data.attempts} whole={data.whole} />
          </Card>
        )}
      </Loading>
    </div>
  );
}
