//! A client: commands with keys through any replica, repeated until they are answered, and a record of
//! every answer.

use std::sync::Arc;
use std::time::Duration;

use hearth_api::{Caller, Key};
use hearth_types::{Fault, FaultCode, Principal, Role, RunId, SeededRandom, TurnId, limits};

use crate::cluster::{Cluster, Member};
use crate::command::{Answer, Command, call, said, same, same_turn};
use crate::script::Script;

const REFUSALS_TAKEN: u32 = 4;

pub struct Client {
    pub name: String,
    pub cluster: Arc<Cluster>,
    pub random: SeededRandom,
    /// Every command that was answered, with its key if it had one.
    pub told: Vec<(Command, Option<String>, Answer)>,
    pub next: u32,
}

impl Client {
    pub fn new(cluster: Arc<Cluster>, number: usize, seed: u64) -> Self {
        let random = SeededRandom::new(seed.wrapping_mul(31).wrapping_add(number as u64 + 1));
        Self { name: format!("c{number}"), cluster, random, told: Vec::new(), next: 0 }
    }

    pub async fn live(mut self) -> Self {
        for _ in 0..self.cluster.world.plan.commands {
            let pause = if self.random.below(3) == 0 { self.random.below(1_500) } else { self.random.below(60) };
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if self.cluster.world.breached().is_some() {
                break;
            }
            if !self.told.is_empty() && self.random.below(6) == 0 {
                self.repeat().await;
                continue;
            }
            match self.random.below(40) {
                0 => self.burst().await,
                1..4 => self.race().await,
                4..8 => self.trespass().await,
                _ => {}
            }
            let command = self.draw();
            let key = Some(self.fresh_key()).filter(|_| command.run().is_none() || self.random.below(8) > 0);
            if key.is_some() && !matches!(command, Command::Poll { .. }) && self.random.below(12) == 0 {
                self.perform_twice(command, key).await;
            } else {
                self.perform(command, key).await;
            }
        }
        self
    }

    /// More prompts for one run than may wait there.
    async fn burst(&mut self) {
        let Some(run) = self.cluster.known().last().cloned() else { return };
        for n in 0..limits::MAX_QUEUED_TURNS + 3 {
            let label = format!("{}b{}", self.name, self.next + 1);
            let script = Script { label, steps: Vec::new(), ms: if n == 0 { 4_000 } else { 1 }, fails: false };
            let key = Some(self.fresh_key());
            self.perform(Command::Send { run: run.clone(), script, wait_ms: 1 }, key).await;
            if !self.cluster.known().contains(&run) {
                return;
            }
        }
    }

    /// A cancel about when the turn completes by itself, with another prompt behind it.
    async fn race(&mut self) {
        let Some(run) = self.cluster.known().last().cloned() else { return };
        let ms = 20 + self.random.below(40);
        for _ in 0..2 {
            let label = format!("{}r{}", self.name, self.next + 1);
            let script = Script { label, steps: Vec::new(), ms, fails: false };
            let key = Some(self.fresh_key());
            self.perform(Command::Send { run: run.clone(), script, wait_ms: 1 }, key).await;
        }
        tokio::time::sleep(Duration::from_millis((ms + self.random.below(10)).saturating_sub(15))).await;
        let key = Some(self.fresh_key());
        self.perform(Command::Cancel { run, turn: None }, key).await;
    }

    /// Another tenant asks for a run of this one, in one way or another.
    async fn trespass(&mut self) {
        let Some(run) = self.cluster.known().last().cloned() else { return };
        let Some(place) = self.cluster.alive().first().copied() else { return };
        let Some(member) = self.cluster.member(place) else { return };
        let script = Script { label: format!("{}t", self.name), steps: Vec::new(), ms: 1, fails: false };
        let command = match self.random.below(7) {
            0 => Command::Send { run, script, wait_ms: 1 },
            1 => Command::Input { run, text: "word.".into(), steer: true },
            2 => Command::Cancel { run, turn: None },
            3 => Command::Close { run },
            4 => Command::Poll { run, turn: None, wait_ms: 1 },
            5 => Command::Open { parent: Some(run), script, wait_ms: 1 },
            _ => match self.cluster.session_of(&run) {
                Some(session) => Command::Message { session, script, wait_ms: 1 },
                None => return,
            },
        };
        let key = self.fresh_key();
        let answer = self.once_as("other", &member, &command, Some(&key), Duration::from_secs(20)).await;
        let told = match &answer {
            None => true,
            Some(Answer::Refused(fault)) => fault.code.retryable() || *fault == Fault::not_found(),
            Some(_) => false,
        };
        self.cluster.world.hold("P6", told, || format!("another tenant's {} got {answer:?}", command.brief()));
    }

    pub fn fresh_key(&mut self) -> String {
        self.next += 1;
        format!("{}-{}", self.name, self.next)
    }

    fn script(&mut self, levels: u32) -> Script {
        let label = format!("{}n{}", self.name, self.next + 1);
        Script::draw(&self.random, label, levels)
    }

    fn draw(&mut self) -> Command {
        let random = &self.random;
        let wait_ms = match random.below(6) {
            0 => 1 + random.below(800),
            1..3 => 1,
            _ => 0,
        };
        let run = {
            let known = self.cluster.known();
            known.get(usize::try_from(random.below(known.len() as u64)).unwrap()).cloned()
        };
        let draw = random.below(20);
        match (run, draw) {
            (None, 0..14) => Command::Open { parent: None, script: self.script(2), wait_ms },
            (None, _) => {
                let interactive = self.random.below(2) == 0;
                let timeout_s = (self.random.below(4) == 0).then(|| 1 + self.random.below(4));
                Command::Create { interactive, script: self.script(2), timeout_s }
            }
            (Some(_), 0..2) => Command::Open { parent: None, script: self.script(2), wait_ms },
            (Some(run), 2..6) => Command::Open { parent: Some(run), script: self.script(1), wait_ms },
            (Some(run), 6..12) => Command::Send { run, script: self.script(1), wait_ms },
            (Some(run), 12..14) => {
                let text = format!("word-{}-{}.", self.name, self.next + 1);
                Command::Input { run, text, steer: self.random.below(3) > 0 }
            }
            (Some(run), 14..16) => {
                let turn = if self.random.below(2) == 0 { None } else { self.known_turn(&run) };
                Command::Cancel { run, turn }
            }
            (Some(run), 16) => Command::Close { run },
            (Some(run), 17) => match self.cluster.session_of(&run) {
                Some(session) => Command::Message { session, script: self.script(1), wait_ms },
                None => Command::Close { run },
            },
            (Some(run), _) => {
                let turn = if self.random.below(2) == 0 { None } else { self.known_turn(&run) };
                Command::Poll { run, turn, wait_ms }
            }
        }
    }

    /// A turn of this run that the client was told of.
    fn known_turn(&self, run: &RunId) -> Option<TurnId> {
        self.told.iter().rev().find_map(|(_, _, answer)| match answer {
            Answer::Turn(envelope) if &envelope.run_id == run => envelope.turn_id.clone(),
            _ => None,
        })
    }

    /// An answered command once more under its key, or another body under it.
    async fn repeat(&mut self) {
        let place = usize::try_from(self.random.below(self.told.len() as u64)).unwrap();
        let (command, key, first) = self.told[place].clone();
        if matches!(first, Answer::Refused(_)) || matches!(command, Command::Poll { .. }) || key.is_none() {
            return;
        }
        let other = match &command {
            Command::Create { interactive, script, timeout_s } => {
                let script = Script { ms: script.ms + 1, ..script.clone() };
                Command::Create { interactive: *interactive, script, timeout_s: *timeout_s }
            }
            Command::Open { parent, script, wait_ms } => {
                let script = Script { ms: script.ms + 1, ..script.clone() };
                Command::Open { parent: parent.clone(), script, wait_ms: *wait_ms }
            }
            Command::Send { run, script, wait_ms } => {
                let script = Script { ms: script.ms + 1, ..script.clone() };
                Command::Send { run: run.clone(), script, wait_ms: *wait_ms }
            }
            Command::Message { session, script, wait_ms } => {
                let script = Script { ms: script.ms + 1, ..script.clone() };
                Command::Message { session: session.clone(), script, wait_ms: *wait_ms }
            }
            Command::Input { run, text, steer } => {
                Command::Input { run: run.clone(), text: format!("{text} other"), steer: *steer }
            }
            other => other.clone(),
        };
        let abused = other != command && self.random.below(3) == 0;
        let again = if abused { other } else { command };
        let Some(answer) = self.ask(&again, key.as_deref()).await else { return };
        let world = &self.cluster.world;
        if abused {
            let refused = matches!(&answer, Answer::Refused(fault) if fault.code == FaultCode::Conflict);
            world.hold("P3", refused, || format!("another body under {key:?} got {answer:?}"));
        } else {
            world.hold("P3", same(&first, &answer), || format!("{key:?} got {first:?} first and then {answer:?}"));
        }
    }

    /// One command twice at once, as a client does whose first try seems lost.
    async fn perform_twice(&mut self, command: Command, key: Option<String>) {
        let (first, second) = tokio::join!(self.ask(&command, key.as_deref()), self.ask(&command, key.as_deref()));
        let (Some(first), Some(second)) = (first, second) else { return };
        // What is refused for want of room leaves no trace, so that the other may be taken.
        let refused = matches!(first, Answer::Refused(_)) || matches!(second, Answer::Refused(_));
        let world = &self.cluster.world;
        world.hold("P3", refused || same_turn(&first, &second), || format!("{key:?} got {first:?} and {second:?}"));
        self.keep(command, key, first);
    }

    /// Asks until there is an answer, and keeps it.
    pub async fn perform(&mut self, command: Command, key: Option<String>) {
        let Some(answer) = self.ask(&command, key.as_deref()).await else { return };
        self.keep(command, key, answer);
    }

    fn keep(&mut self, command: Command, key: Option<String>, answer: Answer) {
        let mut known = self.cluster.known();
        match (&answer, command.run()) {
            (Answer::Turn(envelope), _) if !known.contains(&envelope.run_id) => {
                known.push(envelope.run_id.clone());
            }
            // Most of what is asked of an ended run is the same refusal; it is asked once in a while.
            (Answer::Refused(_), Some(run)) if self.random.below(8) > 0 => known.retain(|id| id != run),
            _ => {}
        }
        drop(known);
        self.told.push((command, key, answer));
    }

    /// `None` when something is broken already, and for a command without a key of which nobody knows
    /// what became.
    async fn ask(&self, command: &Command, key: Option<&str>) -> Option<Answer> {
        let world = self.cluster.world.clone();
        let name = format!("{} {}", self.name, key.unwrap_or("-"));
        world.story.tell(|| format!("{name}: {}", command.brief()));
        let mut refusals = 0;
        loop {
            if world.breached().is_some() {
                return None;
            }
            let alive = self.cluster.alive();
            if alive.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            let place = alive[usize::try_from(self.random.below(alive.len() as u64)).unwrap()];
            let Some(member) = self.cluster.member(place) else { continue };
            let patience = Duration::from_millis(match self.random.below(4) {
                0 => 200 + self.random.below(2_000),
                _ => 5_000 + self.random.below(30_000),
            });
            let answer = self.once(&member, command, key, patience).await;
            world.story.tell(|| format!("{name}: {} says {}", member.replica, said(answer.as_ref())));
            match answer {
                None => {
                    key?;
                    tokio::time::sleep(Duration::from_millis(self.random.below(200))).await;
                }
                Some(Answer::Refused(fault)) if fault.code.retryable() => {
                    key?;
                    refusals += u32::from(fault.code == FaultCode::QueueFull || fault.code == FaultCode::QuotaExceeded);
                    if refusals > REFUSALS_TAKEN {
                        return Some(Answer::Refused(fault));
                    }
                    tokio::time::sleep(Duration::from_millis(50 + self.random.below(400))).await;
                }
                Some(answer) => {
                    self.check(command, &answer);
                    return Some(answer);
                }
            }
        }
    }

    /// One try at one replica; `None` when the connection broke or patience ran out.
    pub async fn once(
        &self,
        member: &Member,
        command: &Command,
        key: Option<&str>,
        patience: Duration,
    ) -> Option<Answer> {
        self.once_as("t", member, command, key, patience).await
    }

    async fn once_as(
        &self,
        tenant: &str,
        member: &Member,
        command: &Command,
        key: Option<&str>,
        patience: Duration,
    ) -> Option<Answer> {
        let key = key.map(|key| Key { key: key.to_owned(), scope: command.scope(), digest: command.digest() });
        let principal = Principal { tenant: tenant.into(), subject: "s".into(), role: Role::Operator };
        let caller = Caller { principal, run: None, key, trace: None };
        let call = async {
            let answer = Box::pin(call(member, &caller, command)).await.unwrap_or_else(Answer::Refused);
            member.gate.pass().await;
            answer
        };
        tokio::select! {
            biased;
            () = member.gate.died() => None,
            answer = call => Some(answer),
            () = tokio::time::sleep(patience) => None,
        }
    }

    /// What must hold at the moment at which a caller is told something.
    fn check(&self, command: &Command, answer: &Answer) {
        let world = &self.cluster.world;
        let books = world.books();
        let told = match answer {
            Answer::Turn(envelope) => books.check_envelope(envelope),
            Answer::Delivered { turn_id, .. } => {
                let run = command.run().and_then(|run| books.book(run));
                let known = run.is_some_and(|book| book.laws.accepted.contains_key(turn_id));
                if known { Ok(()) } else { Err(format!("P2: {turn_id} was delivered and is not in the journal")) }
            }
            Answer::Cancelled { envelope, stopped } => books.check_envelope(envelope).and_then(|()| {
                let cancelled = envelope.outcome == Some(hearth_types::TurnOutcome::Cancelled);
                if *stopped && !cancelled { Err(format!("P4: stopped and told {envelope:?}")) } else { Ok(()) }
            }),
            Answer::Closed { state, .. } => command.run().map_or(Ok(()), |run| {
                let (end, live) = (books.end_of(run), books.live_below(run));
                if end == Some(*state) && live.is_empty() {
                    Ok(())
                } else {
                    Err(format!("P5: {run} was told {}; it is {end:?} and {live:?} live below it", state.as_str()))
                }
            }),
            Answer::Refused(fault) => self.check_refusal(&books, command, fault),
        };
        drop(books);
        if let Err(what) = told {
            world.breach(what);
        }
    }

    fn check_refusal(&self, books: &crate::books::Books, command: &Command, fault: &Fault) -> Result<(), String> {
        let subject = match command {
            Command::Open { parent, .. } => parent.as_ref(),
            other => other.run(),
        };
        let book = subject.and_then(|run| books.book(run));
        let over = book.is_some_and(|book| book.laws.closing || book.laws.end.is_some());
        let fits = match fault.code {
            FaultCode::RunEnded => over,
            FaultCode::ResidentLimit | FaultCode::ToolRefused => {
                matches!(command, Command::Open { parent: Some(_), .. })
            }
            FaultCode::QueueFull | FaultCode::QuotaExceeded => true,
            // Answered under another key's name: judged where it was provoked.
            FaultCode::Conflict => true,
            _ => false,
        };
        if fits { Ok(()) } else { Err(format!("P7: {} was refused: {fault}", command.brief())) }
    }
}
