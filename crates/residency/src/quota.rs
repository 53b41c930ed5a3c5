//! What a tenant may have: runs that are not final, over all replicas.
//!
//! The registry counts them as seats, which is fast and exact. It may lose them; the journal's index knows which runs there
//! are, so whoever notices counts them again. Until that is certain to have found all of them, and while the registry is
//! out of reach, the quota is approximate, and every refusal says so.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hearth_journal::HeadQuery;
use hearth_registry::{Count, Seat};
use hearth_run_core::RunSpec;
use hearth_types::{RunId, Tenant};
use tokio::time::Instant;

use crate::{Error, Residents, metrics};

/// Rows of the index, and seats, that are looked at in one go.
const PAGE: u32 = 500;
/// From the moment a run gets its seat until its journal has begun, at the most. A seat without a journal that is older
/// is of an open that came to nothing; a count that is older has missed none of them.
const OPENING: Duration = Duration::from_secs(15);
/// How often one replica counts a tenant's seats again because they are all taken.
const RECOUNT_EVERY: Duration = Duration::from_secs(5);
/// Tenants whose last count is remembered.
const REMEMBERED: usize = 4_096;

#[derive(Default)]
pub(crate) struct Quotas {
    recounted: Mutex<HashMap<Tenant, Instant>>,
}

impl Quotas {
    /// Whether it is time to count again because all seats are taken.
    fn may_recount(&self, tenant: &Tenant) -> bool {
        let mut recounted = self.recounted.lock().unwrap_or_else(PoisonError::into_inner);
        if recounted.get(tenant).is_some_and(|at| at.elapsed() < RECOUNT_EVERY) {
            return false;
        }
        if recounted.len() >= REMEMBERED {
            recounted.clear();
        }
        recounted.insert(tenant.clone(), Instant::now());
        true
    }
}

impl Residents {
    /// Takes a seat for a run that is to be opened; the same run again has it already.
    pub(crate) async fn take_seat(&self, spec: &RunSpec) -> Result<(), Error> {
        let limit = self.inner.options.max_runs_per_tenant;
        if limit == 0 {
            return Ok(());
        }
        let (taken, approximate) = match self.counted_seat(&spec.tenant, &spec.run_id, limit).await {
            Ok(seat) if seat.granted => return Ok(()),
            Ok(seat) => (seat.taken, seat.count != Count::Whole),
            Err(error) => {
                tracing::debug!(%error, "seats are counted from this replica's own index");
                metrics::QUOTA_APPROXIMATE.inc();
                let live = self.live_runs(&spec.tenant, limit).await?;
                if (live.len() as u64) < limit || live.contains(&spec.run_id) {
                    return Ok(());
                }
                (live.len() as u64, true)
            }
        };
        metrics::QUOTA_REFUSED.inc();
        Err(Error::Quota { limit, taken, approximate })
    }

    async fn counted_seat(&self, tenant: &Tenant, run: &RunId, limit: u64) -> Result<Seat, Error> {
        let registry = &self.inner.registry;
        let mut seat = registry.take_seat(tenant, run, limit).await?;
        let finds_all = match seat.count {
            Count::Lost => Some(false),
            // Whatever was opened before the seats were lost is in the index by now.
            Count::Recounted { ago } if ago > OPENING => Some(true),
            Count::Recounted { .. } | Count::Whole => None,
        };
        if finds_all.is_some() {
            self.recount(tenant, finds_all).await?;
            seat = registry.take_seat(tenant, run, limit).await?;
        }
        // One whose end was told to nobody is found here, at the only moment at which it matters.
        if !seat.granted && self.inner.quotas.may_recount(tenant) {
            self.recount(tenant, None).await?;
            seat = registry.take_seat(tenant, run, limit).await?;
        }
        if seat.count != Count::Whole {
            metrics::QUOTA_APPROXIMATE.inc();
        }
        Ok(seat)
    }

    /// Gives the seats to the runs that are there, and to no others; and says how certain that is, unless it is known.
    async fn recount(&self, tenant: &Tenant, whole: Option<bool>) -> Result<(), Error> {
        let registry = &self.inner.registry;
        let live = self.live_runs(tenant, u64::MAX).await?;
        registry.seat_all(tenant, &live.iter().cloned().collect::<Vec<_>>()).await?;
        let mut kept = 0;
        loop {
            let seats = registry.seats(tenant, kept, PAGE as usize).await?;
            let last = seats.len() < PAGE as usize;
            for (run, held) in seats {
                if live.contains(&run) || held < OPENING || self.is_live(&run).await? {
                    kept += 1;
                } else {
                    registry.leave_seat(tenant, &run).await?;
                }
            }
            if last {
                break;
            }
        }
        if let Some(whole) = whole {
            registry.counted(tenant, whole).await?;
        }
        Ok(())
    }

    async fn is_live(&self, run: &RunId) -> Result<bool, Error> {
        Ok(self.inner.journal.head(run).await?.is_some_and(|head| !head.state.is_final()))
    }

    /// The tenant's runs that are not final, up to a number, as the index knows them.
    async fn live_runs(&self, tenant: &Tenant, most: u64) -> Result<HashSet<RunId>, Error> {
        let mut runs = HashSet::new();
        let mut query = HeadQuery { tenant: Some(tenant.clone()), live: true, limit: PAGE, ..HeadQuery::default() };
        loop {
            let page = self.inner.journal.heads(&query).await?;
            query.after = page.heads.last().map(|head| (head.created_at, head.run_id.clone()));
            runs.extend(page.heads.into_iter().map(|head| head.run_id));
            if !page.more || query.after.is_none() || runs.len() as u64 >= most {
                return Ok(runs);
            }
        }
    }

    /// Gives the seat of a run back that has ended, or never began.
    pub(crate) fn leave_seat(&self, tenant: &Tenant, run: &RunId) {
        if self.inner.options.max_runs_per_tenant == 0 {
            return;
        }
        let (inner, tenant, run) = (self.inner.clone(), tenant.clone(), run.clone());
        self.inner.tasks.spawn(async move {
            if let Err(error) = inner.registry.leave_seat(&tenant, &run).await {
                tracing::debug!(%error, "a seat was not given back; who next finds all of them taken counts again");
            }
        });
    }
}
