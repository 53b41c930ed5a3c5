//! The warm pool: sessions that are up before anybody asks for them.
//!
//! A member is a session in everything but an owner: it has its id, its record (`pool/ID.json`) from before
//! it exists, and the driver's labels. An open that takes one takes its id too, so that nothing has to be
//! renamed or told to the driver, and what is left to do is one write to the state folder. Two things are
//! fixed when a container is made and cannot follow: no label names the run tree, and the init's own end is up
//! to [`MAX_AGE`] later than the session's, which the node keeps.
//!
//! A durable workspace cannot be mounted into a container that runs, and a network of its own cannot be taken
//! from a pool; opens with one of those start cold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use hearth_types::{Isolation, SandboxId, SandboxLimits, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::init::InitClient;
use crate::node::close::STOP_DEADLINE;
use crate::node::metrics::{POOL_EVENTS, POOL_READY};
use crate::node::open::START_DEADLINE;
use crate::node::policy::Plan;
use crate::node::session::locked;
use crate::node::{Inner, blocking};
use crate::{Error, ErrorKind, Network, SessionSpec, SharedDriver, Started, Work};

/// A member older than this is replaced.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(30 * 60);
/// Kinds of sessions that are kept ready, the default one among them; the one asked for longest ago goes first.
const MAX_SHAPES: usize = 4;
/// A kind that nobody asked for in this time is not kept ready any more. The default one always is.
const FORGET_AFTER: Duration = Duration::from_secs(15 * 60);
/// Opens of a kind before it is kept ready.
const OPENS_BEFORE: u32 = 2;
/// Members that come up or go at once: an open that starts cold comes first.
const WIDTH: usize = 2;
/// After a start that failed, doubled with each in a row.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// How long a drain waits for an engine that does not answer; the next start finishes it.
const DRAIN_DEADLINE: Duration = Duration::from_secs(20);

/// What makes one member as good as another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub kind: String,
    pub isolation: Isolation,
    pub image: Option<String>,
    pub runtime: Option<String>,
    pub limits: SandboxLimits,
}

impl Shape {
    /// Nothing for what no pool can hold.
    pub(crate) fn of(plan: &Plan, driver: &SharedDriver) -> Option<Self> {
        (plan.workspace.is_none() && plan.network == Network::None).then(|| Self {
            kind: driver.kind().to_owned(),
            isolation: driver.isolation(),
            image: plan.image.clone(),
            runtime: plan.runtime.clone(),
            limits: plan.limits,
        })
    }

    fn driver<'a>(&self, drivers: &'a [SharedDriver]) -> Option<&'a SharedDriver> {
        drivers.iter().find(|driver| {
            let has = |name: &str| driver.has_runtime(name);
            driver.kind() == self.kind
                && driver.isolation() == self.isolation
                && self.runtime.as_deref().is_none_or(has)
        })
    }
}

/// A member as it survives the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolRecord {
    pub shape: Shape,
    pub spec: SessionSpec,
    pub made_at: Timestamp,
}

/// A member that runs.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub record: PoolRecord,
    pub started: Started,
}

impl Member {
    pub(crate) fn id(&self) -> &SandboxId {
        &self.record.spec.session
    }
}

struct Kept {
    shape: Shape,
    opens: u32,
    last_asked: Timestamp,
    ready: VecDeque<Member>,
    making: usize,
    failures: u32,
    not_before: Instant,
}

impl Kept {
    fn new(shape: Shape, opens: u32, now: Timestamp) -> Self {
        Self {
            shape,
            opens,
            last_asked: now,
            ready: VecDeque::new(),
            making: 0,
            failures: 0,
            not_before: Instant::now(),
        }
    }
}

/// What the pool holds and wants. The first shape is the default.
pub(crate) struct Pool {
    size: usize,
    shapes: Vec<Kept>,
    /// Members that are being made, ready, or being removed.
    held: BTreeSet<SandboxId>,
    /// Members of an earlier process, not looked at yet.
    found: Vec<PoolRecord>,
    going: Vec<PoolRecord>,
    closed: bool,
    pub(crate) changed: Arc<Notify>,
    drained: watch::Sender<bool>,
}

impl Pool {
    pub(crate) fn new(size: usize, default: Option<Shape>, found: Vec<PoolRecord>, now: Timestamp) -> Self {
        let shapes = default.into_iter().map(|shape| Kept::new(shape, OPENS_BEFORE, now)).collect();
        let held = found.iter().map(|record| record.spec.session.clone()).collect();
        let drained = watch::Sender::new(false);
        Self { size, shapes, held, found, going: Vec::new(), closed: false, changed: Arc::default(), drained }
    }

    /// Whether the pool answers for what there is of this id.
    pub(crate) fn holds(&self, id: &SandboxId) -> bool {
        self.held.contains(id)
    }

    /// A member for an open, which is the caller's from now on. Nothing: the open starts cold.
    pub(crate) fn take(&mut self, shape: &Shape, now: Timestamp) -> Option<Member> {
        if self.size == 0 || self.closed {
            return None;
        }
        self.changed.notify_one();
        let Some(kept) = self.shapes.iter_mut().find(|kept| kept.shape == *shape) else {
            self.notice(shape, now);
            return None;
        };
        kept.opens = kept.opens.saturating_add(1);
        kept.last_asked = now;
        while let Some(member) = kept.ready.pop_front() {
            POOL_READY.dec();
            if now.since(member.record.made_at) < MAX_AGE {
                self.held.remove(member.id());
                POOL_EVENTS.with_label_values(&["taken"]).inc();
                return Some(member);
            }
            self.going.push(member.record);
        }
        POOL_EVENTS.with_label_values(&["empty"]).inc();
        None
    }

    fn notice(&mut self, shape: &Shape, now: Timestamp) {
        POOL_EVENTS.with_label_values(&["empty"]).inc();
        if self.shapes.len() >= MAX_SHAPES {
            let oldest = self.shapes.iter().enumerate().skip(1).min_by_key(|(_, kept)| kept.last_asked);
            if let Some(index) = oldest.map(|(index, _)| index) {
                let kept = self.shapes.remove(index);
                self.let_go(kept);
            }
        }
        self.shapes.push(Kept::new(shape.clone(), 1, now));
    }

    fn let_go(&mut self, kept: Kept) {
        POOL_READY.sub(i64::try_from(kept.ready.len()).unwrap_or(0));
        self.going.extend(kept.ready.into_iter().map(|member| member.record));
    }

    /// Moves what is too old, or not wanted any more, to what goes.
    fn settle(&mut self, now: Timestamp) {
        let stale: Vec<usize> = (1..self.shapes.len())
            .rev()
            .filter(|index| now.since(self.shapes[*index].last_asked) >= FORGET_AFTER)
            .collect();
        for index in stale {
            let kept = self.shapes.remove(index);
            self.let_go(kept);
        }
        let size = if self.closed { 0 } else { self.size };
        let mut old = Vec::new();
        for kept in &mut self.shapes {
            let (fresh, aged): (VecDeque<Member>, VecDeque<Member>) =
                kept.ready.drain(..).partition(|member| now.since(member.record.made_at) < MAX_AGE);
            kept.ready = fresh;
            old.extend(aged);
            while kept.ready.len() > size {
                old.extend(kept.ready.pop_front());
            }
        }
        POOL_READY.sub(i64::try_from(old.len()).unwrap_or(0));
        self.going.extend(old.into_iter().map(|member| member.record));
    }

    /// The records of the members to make now.
    fn missing(&mut self, node: &str, max_ttl: Duration, now: Timestamp) -> Vec<PoolRecord> {
        if self.closed {
            return Vec::new();
        }
        let mut records = Vec::new();
        for kept in &mut self.shapes {
            if kept.opens < OPENS_BEFORE || kept.not_before > Instant::now() {
                continue;
            }
            let wanted = self.size.saturating_sub(kept.ready.len() + kept.making).min(WIDTH);
            kept.making += wanted;
            records.extend((0..wanted).map(|_| member(&kept.shape, node, max_ttl, now)));
        }
        self.held.extend(records.iter().map(|record| record.spec.session.clone()));
        records
    }

    fn made(&mut self, member: Member) {
        let kept = self.shapes.iter_mut().find(|kept| kept.shape == member.record.shape);
        match kept {
            Some(kept) if !self.closed => {
                kept.making = kept.making.saturating_sub(1);
                kept.failures = 0;
                kept.ready.push_back(member);
                POOL_READY.inc();
            }
            _ => self.going.push(member.record),
        }
    }

    fn not_made(&mut self, record: PoolRecord) {
        if let Some(kept) = self.shapes.iter_mut().find(|kept| kept.shape == record.shape) {
            kept.making = kept.making.saturating_sub(1);
            kept.failures = kept.failures.saturating_add(1);
            kept.not_before = Instant::now() + (PAUSE * 2_u32.pow(kept.failures.min(6) - 1)).min(MAX_PAUSE);
        }
        self.going.push(record);
    }

    /// Takes a member that does not answer out of those that are ready.
    fn died(&mut self, id: &SandboxId) {
        for kept in &mut self.shapes {
            if let Some(index) = kept.ready.iter().position(|member| member.id() == id)
                && let Some(member) = kept.ready.remove(index)
            {
                POOL_READY.dec();
                self.going.push(member.record);
            }
        }
    }

    pub(crate) fn members(&self) -> Vec<SandboxId> {
        self.ready().iter().map(|member| member.id().clone()).collect()
    }

    fn ready(&self) -> Vec<Member> {
        self.shapes.iter().flat_map(|kept| kept.ready.iter().cloned()).collect()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let ready: usize = self.shapes.iter().map(|kept| kept.ready.len()).sum();
        POOL_READY.sub(i64::try_from(ready).unwrap_or(0));
    }
}

fn member(shape: &Shape, node: &str, max_ttl: Duration, now: Timestamp) -> PoolRecord {
    PoolRecord {
        shape: shape.clone(),
        spec: SessionSpec {
            session: SandboxId::generate(),
            root_run: None,
            node: node.to_owned(),
            image: shape.image.clone(),
            work: Work::Tmpfs { mb: shape.limits.tmpfs_mb.unwrap_or_default() },
            network: Network::None,
            limits: shape.limits,
            runtime: shape.runtime.clone(),
            deadline: now.plus(max_ttl).plus(MAX_AGE),
            env: BTreeMap::new(),
        },
        made_at: now,
    }
}

/// Keeps the pool as it should be for as long as the node is there.
pub(crate) async fn run(inner: Weak<Inner>) {
    let Some(changed) = inner.upgrade().map(|inner| locked(&inner.pool).changed.clone()) else { return };
    loop {
        let Some(node) = inner.upgrade() else { return };
        adopt(&node).await;
        if tend(&node).await {
            return;
        }
        let pause = node.options.sweep_interval;
        drop(node);
        tokio::time::timeout(pause, changed.notified()).await.ok();
    }
}

/// Looks at the members of an earlier process: those that fit still are members, the others go.
async fn adopt(inner: &Arc<Inner>) {
    let found = std::mem::take(&mut locked(&inner.pool).found);
    let looks = found.into_iter().map(|record| async move {
        let driver = record.shape.driver(&inner.drivers);
        let wanted = locked(&inner.pool).shapes.iter().any(|kept| kept.shape == record.shape);
        let young = inner.clock.now().since(record.made_at) < MAX_AGE;
        let started = match driver.filter(|_| wanted && young) {
            Some(driver) => tokio::time::timeout(START_DEADLINE, driver.reattach(&record.spec)).await,
            None => Ok(Err(Error::new(ErrorKind::SessionLost, "the member is not wanted any more"))),
        };
        let mut pool = locked(&inner.pool);
        match started {
            Ok(Ok(started)) => pool.made(Member { record, started }),
            _ => pool.going.push(record),
        }
    });
    futures::stream::iter(looks).buffer_unordered(WIDTH).collect::<Vec<()>>().await;
}

/// One look at all of it. True: the pool is closed and empty.
async fn tend(inner: &Arc<Inner>) -> bool {
    check(inner).await;
    loop {
        let (going, making) = {
            let mut pool = locked(&inner.pool);
            let now = inner.clock.now();
            pool.settle(now);
            let making = pool.missing(&inner.options.name, inner.options.max_ttl, now);
            (std::mem::take(&mut pool.going), making)
        };
        if going.is_empty() && making.is_empty() {
            let pool = locked(&inner.pool);
            let done = pool.closed && pool.held.is_empty();
            if done {
                pool.drained.send_replace(true);
            }
            return done;
        }
        let removed = futures::stream::iter(going.into_iter().map(|record| remove(inner, record)));
        let made = futures::stream::iter(making.into_iter().map(|record| make(inner, record)));
        let left: Vec<Option<PoolRecord>> = removed.buffer_unordered(WIDTH).collect().await;
        made.buffer_unordered(WIDTH).collect::<Vec<()>>().await;
        let left: Vec<PoolRecord> = left.into_iter().flatten().collect();
        if !left.is_empty() {
            // The engine is out of reach; the next look tries again.
            locked(&inner.pool).going.extend(left);
            return false;
        }
    }
}

/// A sign of life for each member's init, and the proof that it is there.
async fn check(inner: &Arc<Inner>) {
    let ready = locked(&inner.pool).ready();
    let looks = ready.into_iter().map(|member| async move {
        if InitClient::connect(&member.started.socket).await.is_err() {
            tracing::warn!(session = %member.id(), "a member of the pool is gone; another takes its place");
            POOL_EVENTS.with_label_values(&["dead"]).inc();
            locked(&inner.pool).died(member.id());
        }
    });
    futures::stream::iter(looks).buffer_unordered(16).collect::<Vec<()>>().await;
}

async fn make(inner: &Arc<Inner>, record: PoolRecord) {
    match bring_up(inner, &record).await {
        Ok(started) => {
            POOL_EVENTS.with_label_values(&["made"]).inc();
            locked(&inner.pool).made(Member { record, started });
        }
        Err(error) => {
            POOL_EVENTS.with_label_values(&["failed"]).inc();
            tracing::warn!(error = &error as &dyn std::error::Error, "a member of the pool did not come up");
            locked(&inner.pool).not_made(record);
        }
    }
}

async fn bring_up(inner: &Arc<Inner>, record: &PoolRecord) -> Result<Started, Error> {
    let driver = record.shape.driver(&inner.drivers);
    let driver = driver.ok_or_else(|| Error::new(ErrorKind::Unavailable, "the pool's driver is not at hand"))?;
    let (node, written) = (inner.clone(), record.clone());
    blocking(move || node.state.put_pooled(&written)).await?;
    match tokio::time::timeout(START_DEADLINE, driver.start(&record.spec)).await {
        Ok(started) => started,
        Err(_) => Err(Error::new(ErrorKind::Deadline, "it did not come up in time")),
    }
}

/// Gives the record back when it could not be done.
async fn remove(inner: &Arc<Inner>, record: PoolRecord) -> Option<PoolRecord> {
    let id = record.spec.session.clone();
    if let Some(driver) = record.shape.driver(&inner.drivers) {
        match tokio::time::timeout(STOP_DEADLINE, driver.stop(&id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(session = %id, error = &error as &dyn std::error::Error, "a member of the pool stays");
                return Some(record);
            }
            Err(_) => return Some(record),
        }
    }
    let (node, session) = (inner.clone(), id.clone());
    if let Err(error) = blocking(move || node.state.remove_pooled(&session)).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "a record of the pool could not be removed");
        return Some(record);
    }
    POOL_EVENTS.with_label_values(&["removed"]).inc();
    locked(&inner.pool).held.remove(&id);
    None
}

/// Removes all members and makes no more.
pub(crate) async fn drain(inner: &Arc<Inner>) {
    let mut drained = {
        let mut pool = locked(&inner.pool);
        pool.closed = true;
        pool.changed.notify_one();
        pool.drained.subscribe()
    };
    let all = tokio::time::timeout(DRAIN_DEADLINE, drained.wait_for(|drained| *drained)).await;
    if all.is_err() {
        tracing::warn!("the pool could not be drained in time; the next start finishes it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

    fn shape(mem_mb: u64) -> Shape {
        let limits = SandboxLimits { mem_mb: Some(mem_mb), ..SandboxLimits::default() };
        Shape { kind: "fake".into(), isolation: Isolation::L2, image: None, runtime: None, limits }
    }

    fn pool(size: usize) -> Pool {
        Pool::new(size, Some(shape(1)), Vec::new(), NOW)
    }

    /// Makes all that is missing, as the task would.
    fn fill(pool: &mut Pool, now: Timestamp) -> usize {
        let mut made = 0;
        loop {
            let records = pool.missing("node-0", Duration::from_secs(60), now);
            if records.is_empty() {
                return made;
            }
            made += records.len();
            for record in records {
                let started = Started { socket: "/s".into(), workspace_path: "/work".into(), runtime: "runc".into() };
                pool.made(Member { record, started });
            }
        }
    }

    #[test]
    fn a_pool_of_none_holds_and_gives_none() {
        let mut pool = pool(0);
        assert_eq!(fill(&mut pool, NOW), 0);
        assert!(pool.take(&shape(1), NOW).is_none());
    }

    #[test]
    fn t13_each_member_is_given_once_and_the_pool_is_filled_again() {
        let mut pool = pool(10);
        assert_eq!(fill(&mut pool, NOW), 10);
        let taken: Vec<Member> = (0..50).filter_map(|_| pool.take(&shape(1), NOW)).collect();
        let ids: BTreeSet<&SandboxId> = taken.iter().map(Member::id).collect();
        assert_eq!((taken.len(), ids.len()), (10, 10));
        assert!(!ids.iter().any(|id| pool.holds(id)), "what was taken is the session's");
        assert_eq!(fill(&mut pool, NOW), 10);
    }

    #[test]
    fn another_kind_is_kept_ready_once_it_is_asked_for_again() {
        let mut pool = pool(2);
        assert!(pool.take(&shape(2), NOW).is_none());
        assert_eq!(fill(&mut pool, NOW), 2, "the default one's");
        assert!(pool.take(&shape(2), NOW).is_none());
        assert_eq!(fill(&mut pool, NOW), 2);
        assert!(pool.take(&shape(2), NOW).is_some());
        pool.settle(NOW.plus(FORGET_AFTER));
        assert_eq!((pool.shapes.len(), pool.going.len()), (1, 1), "and let go when nobody asks any more");
    }

    #[test]
    fn kinds_are_bounded_and_the_default_stays() {
        let mut pool = pool(1);
        for mem_mb in 2..20 {
            pool.take(&shape(mem_mb), NOW.plus(Duration::from_secs(mem_mb)));
        }
        assert_eq!(pool.shapes.len(), MAX_SHAPES);
        assert_eq!(pool.shapes[0].shape, shape(1));
    }

    #[test]
    fn an_old_member_is_replaced_not_given() {
        let mut pool = pool(1);
        fill(&mut pool, NOW);
        let later = NOW.plus(MAX_AGE);
        assert!(pool.take(&shape(1), later).is_none());
        assert_eq!(pool.going.len(), 1);
        assert_eq!(fill(&mut pool, later), 1);
        pool.settle(later.plus(MAX_AGE));
        assert_eq!(pool.going.len(), 2);
    }

    #[test]
    fn a_start_that_failed_is_tried_again_later_and_leaves_its_remains_to_be_removed() {
        let mut pool = pool(1);
        let record = pool.missing("node-0", Duration::from_secs(60), NOW).remove(0);
        let id = record.spec.session.clone();
        pool.not_made(record);
        assert!(pool.missing("node-0", Duration::from_secs(60), NOW).is_empty(), "not at once");
        assert!(pool.holds(&id) && pool.going.len() == 1);
    }
}
