import { useCampaigns } from "../../api/campaigns";
import { Pager } from "../../app/ListTools";
import { useListing } from "../../app/listing";
import { Loading, Page } from "../../app/Page";
import { EmptyState, Table } from "../../design";
import { CAMPAIGNS } from "./columns";

export default function CampaignsPage() {
  const listing = useListing();
  const query = useCampaigns(listing.after);
  return (
    <Page title="Campaigns">
      <Loading query={query}>
        {({ items: rows, next }) => (
          <>
            <Table
              caption="Campaigns"
              cards
              columns={CAMPAIGNS}
              rows={rows}
              rowKey={(row) => row.id}
              empty={<Nothing />}
            />
            <Pager listing={listing} next={next ?? null} shown={rows.length} />
          </>
        )}
      </Loading>
    </Page>
  );
}

function Nothing() {
  return (
    <EmptyState title="No campaigns yet">
      <p>
        A campaign makes a model faster: it searches kernels for the parts that cost most, and keeps those
        that pay in the model. Begin one where the model is:{" "}
        <code>warpsmith campaign MODEL.py --budget candidates=60</code>
      </p>
    </EmptyState>
  );
}
