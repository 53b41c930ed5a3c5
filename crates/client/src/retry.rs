//! When to repeat a call, and when to give up. Pure: the caller brings the clock and does the waiting.

use std::time::Duration;

/// Bounds of the repetition of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How long a server that never answered this client is tried. Short: it is probably not there.
    pub first_contact: Duration,
    /// How long an outage of a server that did answer may last. Counted from its first failure, not
    /// from the start of the call, which may rightly have been blocked for hours.
    pub outage: Duration,
    /// The longest single delay. The first one is a sixteenth of it, and each next one is twice as long.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first_contact: Duration::from_secs(2),
            outage: Duration::from_secs(60),
            max_delay: Duration::from_secs(2),
        }
    }
}

/// How an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection, or silence until the attempt's own time-out.
    NoAnswer,
    /// The connection broke, `after` this long.
    Broken { after: Duration },
    /// The server asked to come back.
    Asked { retry_after: Option<Duration> },
}

/// The state of the repetition of one call.
#[derive(Debug)]
pub(crate) struct Patience {
    policy: RetryPolicy,
    reached: bool,
    /// When the present outage began, on the caller's clock.
    since: Option<Duration>,
    failures: u32,
    random: u64,
}

impl Patience {
    /// `reached`: whether this server has answered before. `seed` spreads the delays of many callers.
    pub(crate) fn new(policy: RetryPolicy, reached: bool, seed: u64) -> Self {
        Self { policy, reached, since: None, failures: 0, random: seed | 1 }
    }

    /// The delay before the next attempt, or `None` to give up. `now` is time since any fixed moment.
    pub(crate) fn after(&mut self, failure: Failure, now: Duration) -> Option<Duration> {
        match failure {
            Failure::NoAnswer => {}
            Failure::Asked { .. } => self.reached = true,
            Failure::Broken { after } => {
                self.reached = true;
                // A call that waited for a long time and then lost its connection (a killed replica, a
                // proxy's idle time-out) starts a new outage; one that breaks at once continues the old.
                if after > self.policy.max_delay {
                    self.recovered();
                }
            }
        }
        let since = *self.since.get_or_insert(now);
        let window = if self.reached { self.policy.outage } else { self.policy.first_contact };
        let left = (since + window).checked_sub(now).filter(|left| !left.is_zero())?;
        let asked = match failure {
            Failure::Asked { retry_after } => retry_after,
            Failure::NoAnswer | Failure::Broken { .. } => None,
        };
        let delay = match asked {
            Some(asked) if asked > left => return None,
            Some(asked) => (asked + self.spread(asked / 8)).min(left),
            None => self.backoff().min(left),
        };
        self.failures = self.failures.saturating_add(1);
        Some(delay)
    }

    /// The server works again: the next failure is a new outage.
    pub(crate) fn recovered(&mut self) {
        self.since = None;
        self.failures = 0;
    }

    /// Between half of the exponential delay and all of it.
    fn backoff(&mut self) -> Duration {
        let full = (self.policy.max_delay / 16).saturating_mul(1 << self.failures.min(4));
        full / 2 + self.spread(full / 2)
    }

    /// Evenly between nothing and `span` (xorshift64: it spreads callers, it protects nothing).
    fn spread(&mut self, span: Duration) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = u32::try_from(self.random % 1_000).unwrap_or(0);
        span.saturating_mul(part) / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn patience(reached: bool) -> Patience {
        Patience::new(RetryPolicy::default(), reached, 7)
    }

    /// Runs failures one after the other until the patience ends; the time that it lasted.
    fn lasts(patience: &mut Patience, failure: Failure) -> Duration {
        let mut now = Duration::ZERO;
        while let Some(delay) = patience.after(failure, now) {
            assert!(delay > Duration::ZERO && delay <= 2 * SECOND, "{delay:?}");
            now += delay;
        }
        now
    }

    #[test]
    fn a_server_that_never_answered_is_given_up_sooner_than_one_that_did() {
        assert_eq!(lasts(&mut patience(false), Failure::NoAnswer), 2 * SECOND);
        assert_eq!(lasts(&mut patience(true), Failure::NoAnswer), 60 * SECOND);
    }

    #[test]
    fn the_wait_that_the_server_asks_for_is_honoured_or_the_call_given_up() {
        let asked = Duration::from_secs(5);
        let delay = patience(true).after(Failure::Asked { retry_after: Some(asked) }, Duration::ZERO).unwrap();
        assert!(delay >= asked && delay <= asked * 9 / 8, "{delay:?}");
        let longer = Failure::Asked { retry_after: Some(Duration::from_secs(61)) };
        assert_eq!(patience(true).after(longer, Duration::ZERO), None);
    }

    #[test]
    fn a_long_wait_that_breaks_begins_a_new_outage() {
        let mut patience = patience(true);
        assert!(patience.after(Failure::NoAnswer, Duration::ZERO).is_some());
        let hour = 3600 * SECOND;
        assert!(patience.after(Failure::Broken { after: hour }, hour).is_some());
        assert!(patience.after(Failure::NoAnswer, hour + 59 * SECOND).is_some());
        assert_eq!(patience.after(Failure::NoAnswer, hour + 60 * SECOND), None);
    }

    #[test]
    fn a_connection_that_always_breaks_at_once_is_given_up() {
        assert_eq!(lasts(&mut patience(false), Failure::Broken { after: SECOND / 100 }), 60 * SECOND);
    }

    #[test]
    fn delays_grow_and_two_callers_do_not_march_in_step() {
        let mut one = Patience::new(RetryPolicy::default(), true, 3);
        let mut two = Patience::new(RetryPolicy::default(), true, 1_000_003);
        let take = |p: &mut Patience| (0..6).map(|_| p.after(Failure::NoAnswer, Duration::ZERO).unwrap()).collect();
        let (first, second): (Vec<Duration>, Vec<Duration>) = (take(&mut one), take(&mut two));
        assert!(first[5] > first[0] * 4, "{first:?}");
        assert_ne!(first, second);
    }
}
