//! Watches the activations: whatever ends one, its slot is freed, and its run is taken up again
//! from the journal if it needs an owner.

use std::sync::Weak;

use hearth_types::RunId;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::metrics;
use crate::residents::Inner;

pub(crate) struct Supervisor;

#[ractor::async_trait]
impl Actor for Supervisor {
    type Msg = ();
    type State = Weak<Inner>;
    type Arguments = Weak<Inner>;

    async fn pre_start(&self, _myself: ActorRef<()>, inner: Weak<Inner>) -> Result<Weak<Inner>, ActorProcessingErr> {
        Ok(inner)
    }

    /// ractor's own handler would stop this supervisor, and with it every activation, on the exit of
    /// any one of them.
    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<()>,
        event: SupervisionEvent,
        inner: &mut Weak<Inner>,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, failure) = match event {
            SupervisionEvent::ActorTerminated(cell, _, _) => (cell, None),
            SupervisionEvent::ActorFailed(cell, error) => (cell, Some(error)),
            _ => return Ok(()),
        };
        metrics::ACTIVE.dec();
        let Some(inner) = inner.upgrade() else { return Ok(()) };
        let Some((run_id, epoch)) = inner.slots.remove_actor(cell.get_id()) else { return Ok(()) };
        crate::Residents::from_inner(inner.clone()).release(run_id.clone(), epoch);
        if let Some(error) = failure {
            tracing::error!(%run_id, %error, "an activation failed; its run goes on from the journal");
            wake(&inner, run_id);
        }
        Ok(())
    }
}

fn wake(inner: &std::sync::Arc<Inner>, run_id: RunId) {
    let residents = crate::Residents::from_inner(inner.clone());
    inner.tasks.spawn(async move {
        if let Err(error) = residents.wake(&run_id).await {
            tracing::warn!(%run_id, %error, "a run could not be taken up again yet; the sweep tries again");
        }
    });
}
