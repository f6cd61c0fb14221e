import type { SearchDocument } from "../../../api/queries";
import { items } from "../../../api/queries";
import { type BundleSummary, useBundles, useDropBundle } from "../../../api/steering";
import { Loading } from "../../../app/Page";
import { Button, Code, Dialog, ErrorNotice, Table, Time, useToast } from "../../../design";
import styles from "./Steer.module.css";

/**
 * How waiting jobs are taken to a judge that the service cannot reach, and the bundles that are away. A bundle is a
 * directory with the judge in it, which the command line writes: a page can not.
 */
export function BundleDialog({ search, onClose }: { search: SearchDocument; onClose: () => void }) {
  const query = useBundles(search.id);
  const drop = useDropBundle(search.id);
  const toast = useToast();

  function giveBack({ id }: BundleSummary) {
    drop.mutate(id, { onSuccess: () => toast("Its jobs are in the queue again") });
  }

  return (
    <Dialog open title="Judge elsewhere" onClose={onClose} actions={<Button onClick={onClose}>Close</Button>}>
      <p>
        Jobs that wait for a judge can be taken to a host that the service cannot reach. Write them to a
        directory, carry it there, run what its README.txt says, and bring the verdicts back:
      </p>
      <Code
        code={`warpsmith bundle ${search.id} --output bundle --with-judge\nwarpsmith merge bundle`}
        label="Commands"
        numbers={false}
      />
      <div className={styles.bundles}>
        <h3>Bundles of this search</h3>
        <Loading query={query}>
          {(page) => (
            <Table
              caption="Bundles"
              rows={items({ pages: [page] })}
              rowKey={({ id }) => id}
              empty={<p>No jobs are away.</p>}
              columns={[
                { key: "made", header: "Made", cell: (row) => <Time at={row.created_at} /> },
                { key: "jobs", header: "Jobs", numeric: true, cell: (row) => row.jobs },
                { key: "out", header: "To come", numeric: true, cell: (row) => row.out },
                {
                  key: "drop",
                  header: "",
                  cell: (row) =>
                    row.out > 0 && (
                      <Button busy={drop.isPending} onClick={() => giveBack(row)}>
                        Give back to the queue
                      </Button>
                    ),
                },
              ]}
            />
          )}
        </Loading>
        {drop.isError && (
          <ErrorNotice error={drop.error} what="The bundle stays" safe="Its jobs are as they were." />
        )}
      </div>
    </Dialog>
  );
}
