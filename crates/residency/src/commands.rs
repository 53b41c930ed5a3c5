//! Commands to a run, wherever its activation is: found, or placed, or taken over.

use std::time::Duration;

use hearth_journal::Error as JournalError;
use hearth_run_core::{Accept, Cancel, Close, Command, HeadBody, OpenChild, Reply, RunSpec, decide};
use hearth_types::{Envelope, Epoch, ReplicaId, RunId, RunState, SandboxSpec, TurnId};

use crate::Error;
use crate::log::read_run;
use crate::reading::SOON;
use crate::remote::{Failure, NoAnswer, Question, Said, What};
use crate::residents::{Accepted, Cancelled, Created, Opened, Residents};

/// Pause before an owner that did not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How long a command's own message waits for the end of the turn that it is accepted for.
const WAIT_HERE: Duration = Duration::from_secs(1);

/// Where a run's activation is, or is to be.
pub(crate) enum Place {
    Here,
    There { replica: ReplicaId, place: bool },
}

/// Who has a run that needs an owner.
pub(crate) enum Holder {
    /// The run is parked or has ended: it needs none.
    NotNeeded,
    Other(ReplicaId),
    /// Nobody, or this replica. The last activation was of this epoch.
    Nobody {
        epoch: Epoch,
    },
}

fn alone(reply: Reply) -> (Reply, Option<Envelope>) {
    (reply, None)
}

impl Residents {
    /// Begins a run with its first turn, here or where there is more room.
    pub async fn create(&self, spec: RunSpec, turn_id: TurnId, prompt: String) -> Result<Created, Error> {
        // A child got its seat before its parent decided.
        if spec.parent.is_some() {
            return self.create_somewhere(spec, turn_id, prompt).await;
        }
        self.take_seat(&spec).await?;
        let (tenant, run_id) = (spec.tenant.clone(), spec.run_id.clone());
        let created = self.create_somewhere(spec, turn_id, prompt).await;
        if let Ok(Created::Existing(run)) = &created
            && run.state.is_final()
        {
            self.leave_seat(&tenant, &run_id);
        }
        created
    }

    async fn create_somewhere(&self, spec: RunSpec, turn_id: TurnId, prompt: String) -> Result<Created, Error> {
        if let Some(replica) = self.chosen() {
            let what = What::Create { spec: Box::new(spec.clone()), turn_id: turn_id.clone(), prompt: prompt.clone() };
            let question = Question { run_id: spec.run_id.clone(), place: true, what };
            match self.question(&replica, &question).await {
                Ok(Said::Created { new: true }) => return Ok(Created::New),
                Ok(Said::Created { new: false }) => return Ok(Created::Existing(self.look(&spec.run_id).await?.0)),
                // Another replica's trouble is no reason to refuse: the fence makes a second try safe.
                Ok(_) | Err(_) => {}
            }
        }
        self.create_here(spec, turn_id, prompt).await
    }

    /// Accepts an input.
    pub async fn accept(&self, run_id: &RunId, accept: Accept) -> Result<Accepted, Error> {
        Ok(self.accept_and_wait(run_id, accept, Duration::ZERO).await?.0)
    }

    /// The same for a caller who waits for the turn's end, up to `wait`: with that, where it comes within a moment.
    pub async fn accept_and_wait(
        &self,
        run_id: &RunId,
        accept: Accept,
        wait: Duration,
    ) -> Result<(Accepted, Option<Envelope>), Error> {
        match self.command_and_turn(run_id, Command::Accept(accept), wait).await? {
            (Reply::Accepted { turn_id, queued, replayed }, ended) => {
                Ok((Accepted { turn_id, queued, replayed }, ended))
            }
            _ => Err(Error::Gone),
        }
    }

    pub async fn cancel(&self, run_id: &RunId, cancel: Cancel) -> Result<Cancelled, Error> {
        match self.command(run_id, Command::Cancel(cancel)).await? {
            Reply::Cancelled { turn_id, stopped, replayed } => Ok(Cancelled { turn_id, stopped, replayed }),
            _ => Err(Error::Gone),
        }
    }

    /// Closes a run with its subtree: whether this call began it, and whether it is a replay.
    pub async fn close(&self, run_id: &RunId, close: Close) -> Result<(bool, bool), Error> {
        match self.command(run_id, Command::Close(close)).await? {
            Reply::Closing { initiated, replayed } => Ok((initiated, replayed)),
            _ => Err(Error::Gone),
        }
    }

    pub(crate) async fn close_and_wait(&self, run_id: &RunId, close: Close) -> Result<(RunState, u64), Error> {
        self.close(run_id, close).await?;
        self.await_end(run_id).await
    }

    /// Opens a child: the parent decides, then the child is created, then this answers.
    pub async fn open_child(&self, parent: &RunId, open: OpenChild) -> Result<Opened, Error> {
        self.take_seat(&open.spec).await?;
        let (tenant, child) = (open.spec.tenant.clone(), open.spec.run_id.clone());
        match self.command(parent, Command::OpenChild(Box::new(open))).await {
            Ok(Reply::ChildOpened { turn_id, existed }) => Ok(Opened { turn_id, existed }),
            Err(error @ Error::Refused(_)) => {
                self.leave_seat(&tenant, &child);
                Err(error)
            }
            Ok(_) => Err(Error::Gone),
            Err(error) => Err(error),
        }
    }

    /// The node that the tree's shared session of a kind is on: the one named, unless the root run has
    /// another already.
    pub async fn bind_sandbox(
        &self,
        root: &RunId,
        slot: String,
        node: String,
        replaces: Option<String>,
    ) -> Result<String, Error> {
        match self.command(root, Command::BindSandbox { slot, node, replaces }).await? {
            Reply::SandboxBound { node } => Ok(node),
            _ => Err(Error::Gone),
        }
    }

    /// What the run and its descendants have to open from now on; absent: nothing in particular.
    pub async fn override_sandbox(&self, run_id: &RunId, sandbox: Option<SandboxSpec>) -> Result<(), Error> {
        self.tell(run_id, Command::OverrideSandbox { sandbox }).await
    }

    /// Makes the run open its sandbox session anew.
    pub async fn forget_sandbox(&self, run_id: &RunId) -> Result<(), Error> {
        self.tell(run_id, Command::ForgetSandbox).await
    }

    /// Looks at the children that count as live and tells the parent of those that have ended: how
    /// many. An end is announced by the child's own activation; one that died first left it unsaid.
    pub async fn refresh_children(&self, parent: &RunId) -> Result<usize, Error> {
        let (run, _) = self.look(parent).await?;
        let mut ended = 0;
        for (child_run_id, _) in run.live_children() {
            let Ok((child, _)) = self.look(child_run_id).await else { continue };
            if child.is_down() {
                let end = hearth_run_core::ChildEnd {
                    child_run_id: child_run_id.clone(),
                    state: child.state,
                    closed_descendants: child.closed_descendants,
                };
                self.tell(parent, Command::ChildEnded(end)).await?;
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// A command whose answer says nothing more.
    pub(crate) async fn tell(&self, run_id: &RunId, command: Command) -> Result<(), Error> {
        self.command(run_id, command).await.map(|_| ())
    }

    /// Carries a command to the run's activation. An owner that does not answer is asked again until
    /// it answers or its lease has run out; then the run is taken over. So is, in the end, a parked run
    /// whose owner lives and cannot be reached from here. Every command can be
    /// repeated: it is recorded by its key or its ids, or has no second effect.
    async fn command(&self, run_id: &RunId, command: Command) -> Result<Reply, Error> {
        Ok(self.command_and_turn(run_id, command, Duration::ZERO).await?.0)
    }

    /// The same; with the envelope of the turn that the command was accepted for, if it ended within `wait`, and
    /// within a moment.
    async fn command_and_turn(
        &self,
        run_id: &RunId,
        command: Command,
        wait: Duration,
    ) -> Result<(Reply, Option<Envelope>), Error> {
        let patience = tokio::time::Instant::now() + self.inner.options.lease * 2 + Duration::from_secs(2);
        loop {
            let result = match self.place(run_id).await {
                Place::Here => match self.command_to(run_id, &command, true, wait).await {
                    Err(error) if error.newer() => {
                        self.command_to_newer(run_id, &command, wait.min(SOON)).await.unwrap_or(Err(error))
                    }
                    result => result,
                },
                Place::There { replica, place } => {
                    match self.command_there(&replica, place, run_id, &command, wait.min(SOON)).await {
                        Some(result) => result,
                        None if tokio::time::Instant::now() <= patience => Err(Error::Gone),
                        // Split from an owner that lives: a parked run loses nothing by being taken over.
                        None if matches!(self.holder(run_id).await, Ok(Holder::NotNeeded)) => {
                            self.command_here(run_id, &command).await.map(alone)
                        }
                        None => {
                            let reason = format!("{replica} has the run and does not answer");
                            return Err(JournalError::Unavailable { reason }.into());
                        }
                    }
                }
            };
            match result {
                Err(error) if error.moved() && tokio::time::Instant::now() <= patience => {}
                // Given up here while it was asked: whoever takes it up is asked next.
                Err(Error::Draining) if self.chosen().is_some() && tokio::time::Instant::now() <= patience => {}
                result => return result,
            }
            tokio::time::sleep(ASK_AGAIN).await;
            self.refresh_peers().await;
        }
    }

    /// Asks the others, one after the other, for one that can read what a newer version wrote.
    async fn command_to_newer(
        &self,
        run_id: &RunId,
        command: &Command,
        soon: Duration,
    ) -> Option<Result<(Reply, Option<Envelope>), Error>> {
        for replica in self.inner.peers.others(self.replica()) {
            match self.command_there(&replica, true, run_id, command, soon).await {
                Some(Err(error)) if error.newer() || matches!(error, Error::Journal(_)) => {}
                Some(result) => return Some(result),
                None => {}
            }
        }
        None
    }

    /// Asks another replica; `None` when that settled nothing.
    async fn command_there(
        &self,
        replica: &ReplicaId,
        place: bool,
        run_id: &RunId,
        command: &Command,
        soon: Duration,
    ) -> Option<Result<(Reply, Option<Envelope>), Error>> {
        let soon_ms = u64::try_from(soon.as_millis()).unwrap_or(u64::MAX);
        let what = match (Box::new(command.clone()), soon_ms) {
            (command, 0) => What::Command(command),
            (command, soon_ms) => What::CommandAndTurn { command, soon_ms },
        };
        let question = Question { run_id: run_id.clone(), place, what };
        match self.question(replica, &question).await {
            Ok(Said::Reply(reply)) => Some(Ok(alone(reply))),
            Ok(Said::ReplyAndTurn(reply, ended)) => Some(Ok((reply, Some(ended)))),
            Ok(Said::Failed(Failure::NotHere)) => Some(self.command_here(run_id, command).await.map(alone)),
            Ok(Said::Failed(Failure::Draining)) if !self.is_draining() => None,
            Ok(Said::Failed(failure)) => Some(Err(failure.into())),
            // What does not fit the bus is carried out where it is: the journal takes it.
            Err(NoAnswer::TooLarge) => Some(self.command_here(run_id, command).await.map(alone)),
            Ok(_) | Err(NoAnswer::Silent) => None,
        }
    }

    /// Where to ask. What the registry says is checked by whoever is asked, and in the end by the fence.
    pub(crate) async fn place(&self, run_id: &RunId) -> Place {
        if self.is_active(run_id) {
            return Place::Here;
        }
        match self.inner.registry.locate(run_id).await {
            Ok(Some(location)) if &location.replica != self.replica() && self.is_live_now(&location.replica).await => {
                Place::There { replica: location.replica, place: false }
            }
            // An empty registry proves nothing: a run that is under way is looked up in the journal, as
            // to take it from an owner that lives would cost it what it has not journaled yet.
            _ => match self.holder(run_id).await {
                Ok(Holder::Other(replica)) => Place::There { replica, place: false },
                _ => match self.chosen() {
                    Some(replica) => Place::There { replica, place: true },
                    None => Place::Here,
                },
            },
        }
    }

    /// Who has a run, as far as the index, the registry and in the end the owner itself know.
    pub(crate) async fn holder(&self, run_id: &RunId) -> Result<Holder, Error> {
        let head = self.inner.journal.head(run_id).await?;
        let Some(head) = head.filter(|head| head.wake) else { return Ok(Holder::NotNeeded) };
        let body: HeadBody = head.body.read().unwrap_or_else(|_| HeadBody::unowned());
        let epoch = body.epoch;
        let Some(owner) = body.owner.filter(|owner| owner != self.replica()) else {
            return Ok(Holder::Nobody { epoch });
        };
        if self.is_live_now(&owner).await {
            return Ok(Holder::Other(owner));
        }
        let question = Question { run_id: run_id.clone(), place: false, what: What::Owned };
        let owned = matches!(self.question(&owner, &question).await, Ok(Said::Owned(true)));
        Ok(if owned { Holder::Other(owner) } else { Holder::Nobody { epoch } })
    }

    /// Whether a replica lives. One that is not known here may have come since the last look.
    pub(crate) async fn is_live_now(&self, replica: &ReplicaId) -> bool {
        if !self.inner.peers.is_live(replica) {
            self.refresh_peers().await;
        }
        self.inner.peers.is_live(replica)
    }

    fn chosen(&self) -> Option<ReplicaId> {
        self.inner.peers.choose(&self.row(), self.inner.options.placement_slack, |below| {
            usize::try_from(self.inner.entropy() % below.max(1) as u64).unwrap_or(0)
        })
    }

    /// Carries a command out on this replica, activating the run if need be.
    pub(crate) async fn command_here(&self, run_id: &RunId, command: &Command) -> Result<Reply, Error> {
        Ok(self.command_to(run_id, command, true, Duration::ZERO).await?.0)
    }

    /// The same; only if the activation is here, unless it `activates`: a question that waited while this replica stood
    /// still must not take the run from whoever has it by now. With the envelope of the turn that the command was
    /// accepted for, if it ended within `wait`.
    pub(crate) async fn command_to(
        &self,
        run_id: &RunId,
        command: &Command,
        activates: bool,
        wait: Duration,
    ) -> Result<(Reply, Option<Envelope>), Error> {
        // What an ended run would refuse or answer without a change needs no activation.
        if self.inner.slots.get(run_id).is_none()
            && let Some(folded) = read_run(&*self.inner.journal, run_id).await?
            && folded.run.state.is_final()
        {
            match decide(&folded.run, command, self.inner.clock.now()) {
                Ok(decision) if decision.events.is_empty() && decision.effects.is_empty() => {
                    return Ok(alone(decision.reply));
                }
                Err(refusal) => return Err(refusal.into()),
                Ok(_) => {}
            }
        }
        // Longer waits are not left to this activation alone, which may be superseded without hearing of it.
        self.ask(run_id, activates, command, wait.min(WAIT_HERE)).await
    }
}
