//! Writers that repeat what is unknown, on a journal that loses requests and answers.

use std::time::Duration;

use tokio::task::JoinSet;

use super::{key, put};
use crate::{Error, FaultyJournal, Journal, MemoryJournal, Odds, Position};

const ODDS: Odds =
    Odds { lose_answer: 150, lose_request: 150, refuse: 100, delay: 200, max_delay: Duration::from_millis(30) };

async fn write_log(journal: &dyn Journal, name: &str, frames: u64) {
    for n in 0..frames {
        loop {
            match put(journal, name, Position(n), n.to_string().as_bytes()).await {
                Ok(position) => break assert_eq!(position, Position(n + 1)),
                Err(Error::Unknown { .. } | Error::Unavailable { .. }) => {}
                Err(error) => panic!("append {n}: {error}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn repeating_what_is_unknown_stores_each_frame_once() {
    for seed in 0..40 {
        let memory = MemoryJournal::new();
        let mut writers = JoinSet::new();
        for writer in 0..4 {
            let journal = FaultyJournal::seeded(memory.clone(), seed * 100 + writer, ODDS);
            writers.spawn(async move { write_log(&journal, &format!("run_{writer}"), 25).await });
        }
        while let Some(joined) = writers.join_next().await {
            joined.unwrap();
        }
        for writer in 0..4 {
            let frames = memory.read(&key(&format!("run_{writer}")), Position(0), 100).await.unwrap();
            let expected: Vec<_> = (0..25).map(|n: u64| n.to_string()).collect();
            let read: Vec<_> = frames.iter().map(|stored| String::from_utf8_lossy(&stored.frame)).collect();
            assert_eq!(read, expected, "seed {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_fates() {
    async fn history(seed: u64) -> Vec<String> {
        let journal = FaultyJournal::seeded(MemoryJournal::new(), seed, ODDS);
        let mut outcomes = Vec::new();
        for n in 0..200 {
            let outcome = put(&journal, &format!("run_{n}"), Position(0), b"x").await;
            outcomes.push(outcome.map_or_else(|error| error.kind().to_owned(), |position| position.to_string()));
        }
        outcomes
    }
    let one = history(7).await;
    assert_eq!(one, history(7).await);
    assert_ne!(one, history(8).await);
    for outcome in ["1", "unknown", "unavailable"] {
        assert!(one.iter().any(|seen| seen == outcome), "no append ended with {outcome}");
    }
}
