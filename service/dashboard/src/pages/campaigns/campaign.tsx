import { useParams } from "react-router";
import { type CampaignDocument, useCampaign } from "../../api/campaigns";
import { Loading, Page } from "../../app/Page";
import { Card, EmptyState, format, Stat, Stats, Table, Time, Untrusted } from "../../design";
import { Bars } from "./Bars";
import { barsOf } from "./bars";
import styles from "./Campaigns.module.css";
import { ms, REGIONS, Stage } from "./columns";

export default function CampaignPage() {
  const { id = "" } = useParams();
  const query = useCampaign(id);
  const name = query.data?.model_name ?? "Campaign";
  return (
    <Page
      title={name}
      heading={<Untrusted text={name} />}
      actions={query.data && <Stage campaign={query.data} />}
    >
      <Loading query={query}>{(campaign) => <Campaign campaign={campaign} />}</Loading>
    </Page>
  );
}

function Campaign({ campaign }: { campaign: CampaignDocument }) {
  const { settings, progress } = campaign;
  const bars = barsOf(campaign);
  return (
    <>
      <p className={styles.lead}>
        <Untrusted text={campaign.target} />,{" "}
        {settings.mode ? <Untrusted text={settings.mode} /> : "default mode"}, begun{" "}
        <Time at={campaign.created_at} />
      </p>
      {campaign.stopped !== null && (
        <p className={styles.warning}>
          It was stopped: <Untrusted text={campaign.stopped} />.{" "}
          <code>warpsmith campaign MODEL.py --resume</code> goes on with it.
        </p>
      )}
      <Times campaign={campaign} />
      <Card title="Where the time goes">
        {bars.length > 0 ? (
          <Bars bars={bars} />
        ) : (
          <EmptyState title="The model is being profiled">
            <p>Its regions and their times come next.</p>
          </EmptyState>
        )}
      </Card>
      <Card title="Regions">
        <Table
          caption="Regions of the model"
          cards
          columns={REGIONS}
          rows={progress.regions ?? []}
          rowKey={(row) => row.name}
          empty="None are known yet."
        />
        <p className={styles.detail}>
          Regions that join others overlap them. A kernel stays where the model is surely faster with it,
          measured beside the others
          {(progress.rounds ?? 0) > 1 && `; ${progress.rounds} rounds, each without what did not pay before`}.
        </p>
      </Card>
      {progress.package && (
        <Card title="In your own code">
          <code>
            from <Untrusted text={progress.package} /> import optimize
          </code>
        </Card>
      )}
    </>
  );
}

function Times({ campaign }: { campaign: CampaignDocument }) {
  const [low, high] = campaign.over_compiled_ci95 ?? [];
  const range =
    low !== undefined && high !== undefined ? `95 % interval ${low.toFixed(2)} to ${high.toFixed(2)}` : "";
  return (
    <Card>
      <Stats>
        <Stat label="As it is">{ms(campaign.before_ms)}</Stat>
        <Stat label="torch.compile">{ms(campaign.compiled_ms)}</Stat>
        <Stat
          label="Now"
          note={campaign.state === "finished" ? "with the kernels that stay" : "not measured yet"}
        >
          {ms(campaign.after_ms)}
        </Stat>
        <Stat label="Over torch.compile" note={range}>
          {format.ratio(campaign.over_compiled)}
        </Stat>
        <Stat label="Kernels in place" note={`of ${campaign.searches} that were searched`}>
          {campaign.kept}
        </Stat>
      </Stats>
    </Card>
  );
}
