//! What befalls the members, drawn from a seed.

use std::time::Duration;

use hearth_tests::{Cluster, Proxy};
use tokio::time::{Instant, sleep};

/// Numbers that follow from a seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator known as splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below(most - least))
    }

    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }
}

pub struct Misfortunes<'c> {
    pub cluster: &'c Cluster,
    /// NATS servers.
    pub servers: u16,
    pub nats: &'c Proxy,
    pub redis: &'c Proxy,
    pub dice: Dice,
}

impl Misfortunes<'_> {
    /// One after the other, each mended before the next. What happened.
    pub async fn go_on_for(mut self, seconds: u64) -> Vec<String> {
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut story = Vec::new();
        while Instant::now() < until {
            sleep(self.dice.millis(300, 1_500)).await;
            story.push(self.one().await);
        }
        story
    }

    async fn one(&mut self) -> String {
        let replica = format!("replica-{}", self.dice.below(3));
        let other = format!("replica-{}", self.dice.below(3));
        let (short, long) = (self.dice.millis(200, 1_000), self.dice.millis(1_000, 4_000));
        let cluster = self.cluster;
        // Where NATS has several servers they fail more often: that is what those are for.
        match self.dice.below(if self.servers > 1 { 11 } else { 9 }) {
            0 | 1 => {
                cluster.kill(&replica).await;
                sleep(long).await;
                cluster.restart(&replica).await;
                format!("killed {replica}")
            }
            2 => {
                cluster.kill(&replica).await;
                if other != replica {
                    cluster.kill(&other).await;
                    cluster.restart(&other).await;
                }
                cluster.restart(&replica).await;
                format!("killed {replica} and {other}")
            }
            3 => {
                cluster.pause(&replica);
                sleep(long).await;
                cluster.resume(&replica);
                format!("stopped {replica} for {long:?}")
            }
            4 => {
                cluster.terminate(&replica).await;
                cluster.restart(&replica).await;
                format!("drained {replica}")
            }
            5 => self.nats_fails(short, long).await,
            6 => {
                cluster.kill("redis").await;
                sleep(short).await;
                cluster.restart("redis").await;
                "emptied Redis".to_owned()
            }
            7 => {
                self.nats.hold();
                if self.dice.below(2) == 0 {
                    self.redis.hold();
                }
                sleep(long).await;
                self.nats.open();
                self.redis.open();
                format!("cut a replica off for {long:?}")
            }
            9 | 10 => self.nats_fails(short, long).await,
            _ => {
                self.nats.lose_answers();
                sleep(short).await;
                self.nats.open();
                format!("lost answers for {short:?}")
            }
        }
    }
    async fn nats_fails(&mut self, short: Duration, long: Duration) -> String {
        let cluster = self.cluster;
        if self.servers == 1 {
            cluster.kill("nats-0").await;
            sleep(short).await;
            cluster.restart("nats-0").await;
            return "restarted NATS".to_owned();
        }
        let server = format!("nats-{}", self.dice.below(u64::from(self.servers)));
        match self.dice.below(4) {
            0 | 1 => {
                cluster.kill(&server).await;
                sleep(long).await;
                cluster.restart(&server).await;
                format!("killed {server} for {long:?}")
            }
            // As cut off: its connections stay and nothing passes.
            2 => {
                cluster.pause(&server);
                sleep(long).await;
                cluster.resume(&server);
                format!("stopped {server} for {long:?}")
            }
            _ => {
                for number in 0..self.servers {
                    cluster.kill(&format!("nats-{number}")).await;
                }
                for number in 0..self.servers {
                    cluster.restart(&format!("nats-{number}")).await;
                }
                "killed all NATS servers".to_owned()
            }
        }
    }
}
