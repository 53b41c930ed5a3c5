//! What a seed makes of a run: how many take part, and what goes wrong.

use std::time::Duration;

use hearth_types::SeededRandom;

/// A kind of misfortune.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A replica dies at once; another one with its id comes later.
    Kill,
    /// A replica stands still and goes on, as under SIGSTOP and SIGCONT.
    Stop,
    /// A replica is stopped in good order.
    Drain,
    /// A replica cannot reach the journal.
    CutJournal,
    CutRegistry,
    CutBus,
    /// Two replicas cannot reach each other.
    Split,
    /// The registry loses everything, or goes back to what it was.
    Amnesia,
    /// Appends and their answers are lost.
    FlakyJournal,
    FlakyRegistry,
    /// Messages are lost, late and doubled.
    FlakyBus,
    /// The clocks disagree.
    Skew,
    /// Answers come late.
    Slow,
}

pub const FAULTS: [Fault; 13] = [
    Fault::Kill,
    Fault::Stop,
    Fault::Drain,
    Fault::CutJournal,
    Fault::CutRegistry,
    Fault::CutBus,
    Fault::Split,
    Fault::Amnesia,
    Fault::FlakyJournal,
    Fault::FlakyRegistry,
    Fault::FlakyBus,
    Fault::Skew,
    Fault::Slow,
];

#[derive(Debug, Clone)]
pub struct Plan {
    pub replicas: usize,
    pub clients: usize,
    /// Commands of each client.
    pub commands: usize,
    pub faults: Vec<Fault>,
    /// Misfortunes that come one after the other.
    pub misfortunes: usize,
    pub idle_ttl: Duration,
    pub passivate_after: Duration,
    /// Activations that one replica may have more than another before new ones go there.
    pub placement_slack: u64,
    /// Trees are closed by their clients in the end; else their idle time ends them.
    pub closes: bool,
}

impl Plan {
    pub fn of(seed: u64) -> Self {
        let random = SeededRandom::new(seed ^ 0x5eed);
        let pick = |options: &[u64]| options[usize::try_from(random.below(options.len() as u64)).unwrap()];
        // One in eight seeds is calm: there every promise is kept at once.
        let odds = if random.below(8) == 0 { 0 } else { 1 + random.below(6) };
        let faults = FAULTS.into_iter().filter(|_| random.below(10) < odds).collect();
        Self {
            replicas: usize::try_from(2 + random.below(3)).unwrap(),
            clients: usize::try_from(1 + random.below(3)).unwrap(),
            commands: usize::try_from(4 + random.below(6)).unwrap(),
            faults,
            misfortunes: usize::try_from(1 + random.below(8)).unwrap(),
            idle_ttl: Duration::from_secs(pick(&[3, 8, 1800, 1800])),
            passivate_after: Duration::from_millis(pick(&[300, 5_000, 60_000, 3_600_000])),
            closes: random.below(3) > 0,
            placement_slack: pick(&[0, 0, 2, 64]),
        }
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}
