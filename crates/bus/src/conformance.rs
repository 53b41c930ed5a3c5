//! The suite that every adapter of the port passes: one property of the trait's contract per
//! function, each on a fresh bus.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a suite says what is wrong by panicking")]

use std::any::Any;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use hearth_types::{ReplicaId, RunId};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::{Bus, Error, Requests, SharedBus, Subject, Subscription};

/// One bus, as several of its users see it. Its buffers hold fewer than [`FLOOD`] messages.
pub struct Setting {
    /// At least two; as independent as the adapter allows.
    pub handles: Vec<SharedBus>,
    pub max_message_bytes: usize,
    /// At least as much.
    pub max_request_bytes: usize,
    /// Lives as long as the bus is used.
    pub keep: Box<dyn Any + Send>,
}

impl Setting {
    pub fn new(handles: Vec<SharedBus>, max_message_bytes: usize, keep: impl Any + Send) -> Self {
        assert!(handles.len() >= 2, "the suite needs two handles of the bus");
        Self { handles, max_message_bytes, max_request_bytes: max_message_bytes, keep: Box::new(keep) }
    }

    #[must_use]
    pub fn with_max_request_bytes(mut self, bytes: usize) -> Self {
        self.max_request_bytes = bytes;
        self
    }

    fn first(&self) -> &dyn Bus {
        &*self.handles[0]
    }

    fn second(&self) -> &dyn Bus {
        &*self.handles[1]
    }
}

/// Messages that overrun the buffer of a subscriber that reads nothing.
pub const FLOOD: u64 = 2_000;

/// Longer than anything takes; waits end by their condition.
const PATIENCE: Duration = Duration::from_secs(20);

macro_rules! run_each {
    ($make:ident: $($property:ident),* $(,)?) => {
        $(
            println!("bus conformance: {}", stringify!($property));
            let setting = $make().await;
            Box::pin($property(&setting)).await;
        )*
    };
}

/// Runs every property, each on a bus that `make` makes for it.
pub async fn run_all<F, Fut>(make: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Setting>,
{
    run_each!(make:
        a_message_to_nobody_is_no_error,
        every_subscriber_gets_what_is_published_after_it_subscribed,
        messages_of_one_publisher_arrive_in_order,
        subjects_do_not_mix,
        a_slow_subscriber_loses_counted_messages_and_slows_nobody,
        a_dropped_subscription_ends,
        a_request_is_answered,
        many_requests_are_answered_each_with_its_own,
        a_request_to_nobody_says_so_at_once,
        a_request_without_an_answer_times_out,
        a_dropped_answer_tells_the_requester,
        a_server_that_is_gone_answers_nobody_and_another_may_come,
        requests_past_the_buffer_end_at_their_deadline,
        an_abandoned_request_disturbs_no_other,
        a_message_over_the_limit_is_refused_with_the_limit,
        the_largest_message_arrives_whole,
    );
}

fn events(name: &str) -> Subject {
    Subject::RunEvents(RunId::parse(name).unwrap())
}

fn commands(name: &str) -> Subject {
    Subject::Commands(ReplicaId::parse(name).unwrap())
}

fn text(text: impl Into<String>) -> Bytes {
    Bytes::from(text.into())
}

async fn next(subscription: &mut Subscription) -> Bytes {
    timeout(PATIENCE, subscription.messages.recv()).await.expect("a message arrives").expect("the subscription is open")
}

/// Answers each request with its payload after `> `.
fn echo(mut requests: Requests) -> JoinSet<()> {
    let mut server = JoinSet::new();
    server.spawn(async move {
        while let Some(request) = requests.incoming.recv().await {
            let answer = [b"> ", &request.payload[..]].concat();
            // A requester that has gone is its own affair.
            request.answer.send(answer.into()).ok();
        }
    });
    server
}

async fn a_message_to_nobody_is_no_error(bus: &Setting) {
    let mut beside = bus.second().subscribe(&events("run_b")).await.unwrap();
    bus.first().publish(&events("run_a"), text("x")).await.unwrap();
    // A publisher does not wait for the bus; what it published later has arrived after "x" has.
    bus.first().publish(&events("run_b"), text("-")).await.unwrap();
    assert_eq!(next(&mut beside).await, "-");
    let mut late = bus.second().subscribe(&events("run_a")).await.unwrap();
    bus.first().publish(&events("run_a"), text("y")).await.unwrap();
    assert_eq!(next(&mut late).await, "y", "what was published before is gone");
}

async fn every_subscriber_gets_what_is_published_after_it_subscribed(bus: &Setting) {
    let mut subscriptions = Vec::new();
    for round in 0..20 {
        let handle = &bus.handles[round % bus.handles.len()];
        subscriptions.push(handle.subscribe(&events("run_a")).await.unwrap());
        for publisher in &bus.handles {
            publisher.publish(&events("run_a"), text(round.to_string())).await.unwrap();
            for subscription in &mut subscriptions {
                assert_eq!(next(subscription).await, round.to_string());
            }
        }
    }
    assert!(subscriptions.iter().all(|subscription| subscription.dropped.load(Ordering::Relaxed) == 0));
}

async fn messages_of_one_publisher_arrive_in_order(bus: &Setting) {
    const MESSAGES: usize = 600;
    let mut subscription = bus.second().subscribe(&events("run_a")).await.unwrap();
    let mut publishers = JoinSet::new();
    for publisher in 0..3 {
        let handle = bus.handles[publisher % bus.handles.len()].clone();
        publishers.spawn(async move {
            for n in 0..MESSAGES {
                handle.publish(&events("run_a"), text(format!("{publisher} {n}"))).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
    }
    let mut last = [None; 3];
    let mut seen = 0;
    while seen + subscription.dropped.load(Ordering::Relaxed) < 3 * MESSAGES as u64 {
        let Ok(message) = timeout(Duration::from_millis(50), subscription.messages.recv()).await else { continue };
        let message = String::from_utf8(message.unwrap().to_vec()).unwrap();
        let (publisher, n) = message.split_once(' ').unwrap();
        let (publisher, n): (usize, usize) = (publisher.parse().unwrap(), n.parse().unwrap());
        assert!(last[publisher] < Some(n), "{publisher} sent {n}, then {:?} arrived", last[publisher]);
        last[publisher] = Some(n);
        seen += 1;
    }
    while let Some(publisher) = publishers.join_next().await {
        publisher.unwrap();
    }
    assert!(seen > 0);
}

async fn subjects_do_not_mix(bus: &Setting) {
    let names = ["run_a", "run_A", "run_ab", "replica-0", "a", "a-b", "a_b"];
    let mut subscriptions = Vec::new();
    for name in names {
        subscriptions.push((format!("e {name}"), bus.second().subscribe(&events(name)).await.unwrap()));
        subscriptions.push((format!("c {name}"), bus.second().subscribe(&commands(name)).await.unwrap()));
    }
    for name in names {
        bus.first().publish(&events(name), text(format!("e {name}"))).await.unwrap();
        bus.first().publish(&commands(name), text(format!("c {name}"))).await.unwrap();
    }
    for (name, subscription) in &mut subscriptions {
        assert_eq!(next(subscription).await, *name);
    }
    // Whatever went astray came before this.
    for (name, subscription) in &mut subscriptions {
        let subject = if name.starts_with('e') { events(&name[2..]) } else { commands(&name[2..]) };
        bus.first().publish(&subject, text("end")).await.unwrap();
        assert_eq!(next(subscription).await, "end", "{name} got another subject's message");
    }
}

async fn a_slow_subscriber_loses_counted_messages_and_slows_nobody(bus: &Setting) {
    let mut slow = bus.second().subscribe(&events("run_a")).await.unwrap();
    let mut quick = bus.second().subscribe(&events("run_a")).await.unwrap();
    for n in 0..FLOOD {
        bus.first().publish(&events("run_a"), text(n.to_string())).await.unwrap();
        assert_eq!(next(&mut quick).await, n.to_string());
    }
    assert_eq!(quick.dropped.load(Ordering::Relaxed), 0);
    let mut received = Vec::new();
    let began = Instant::now();
    while received.len() as u64 + slow.dropped.load(Ordering::Relaxed) < FLOOD {
        match timeout(Duration::from_millis(50), slow.messages.recv()).await {
            Ok(message) => received.push(message.expect("a slow subscription goes on")),
            Err(_) => assert!(began.elapsed() < PATIENCE, "messages are neither there nor counted"),
        }
    }
    assert!(slow.dropped.load(Ordering::Relaxed) > 0, "the buffer has no bound");
    let received: Vec<u64> = received.iter().map(|n| std::str::from_utf8(n).unwrap().parse().unwrap()).collect();
    assert!(received.is_sorted(), "{received:?}");
    bus.first().publish(&events("run_a"), text("after")).await.unwrap();
    assert_eq!(next(&mut slow).await, "after", "the subscription goes on");
}

async fn a_dropped_subscription_ends(bus: &Setting) {
    let gone = bus.second().subscribe(&events("run_a")).await.unwrap();
    let mut stays = bus.second().subscribe(&events("run_a")).await.unwrap();
    drop(gone);
    for n in 0..FLOOD / 4 {
        bus.first().publish(&events("run_a"), text(n.to_string())).await.unwrap();
        assert_eq!(next(&mut stays).await, n.to_string());
    }
}

async fn a_request_is_answered(bus: &Setting) {
    let _server = echo(bus.first().serve(&commands("r1")).await.unwrap());
    for handle in &bus.handles {
        assert_eq!(handle.request(&commands("r1"), text("hi"), PATIENCE).await.unwrap(), "> hi");
        assert_eq!(handle.request(&commands("r1"), Bytes::new(), PATIENCE).await.unwrap(), "> ");
    }
}

async fn many_requests_are_answered_each_with_its_own(bus: &Setting) {
    let _server = echo(bus.first().serve(&commands("r1")).await.unwrap());
    let mut requests = JoinSet::new();
    for n in 0..300usize {
        let handle = bus.handles[n % bus.handles.len()].clone();
        requests.spawn(async move {
            let answer = handle.request(&commands("r1"), text(n.to_string()), PATIENCE).await.unwrap();
            assert_eq!(answer, format!("> {n}"));
        });
    }
    while let Some(request) = requests.join_next().await {
        request.unwrap();
    }
}

async fn a_request_to_nobody_says_so_at_once(bus: &Setting) {
    let began = Instant::now();
    let error = bus.first().request(&commands("r9"), text("hi"), PATIENCE).await.unwrap_err();
    assert!(matches!(error, Error::NoResponders { .. }), "{error}");
    assert!(began.elapsed() < PATIENCE / 4);
}

async fn a_request_without_an_answer_times_out(bus: &Setting) {
    let mut requests = bus.first().serve(&commands("r1")).await.unwrap();
    let began = Instant::now();
    let deadline = Duration::from_millis(300);
    let error = bus.second().request(&commands("r1"), text("hi"), deadline).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(began.elapsed() >= deadline && began.elapsed() < PATIENCE / 4, "after {:?}", began.elapsed());
    let late = requests.incoming.recv().await.unwrap();
    late.answer.send(text("late")).ok();
}

async fn a_dropped_answer_tells_the_requester(bus: &Setting) {
    let mut requests = bus.first().serve(&commands("r1")).await.unwrap();
    let subject = commands("r1");
    let dropping = async { drop(requests.incoming.recv().await.unwrap().answer) };
    let began = Instant::now();
    let (answer, ()) = tokio::join!(bus.second().request(&subject, text("hi"), PATIENCE), dropping);
    let error = answer.unwrap_err();
    assert!(matches!(error, Error::NoResponders { .. }), "{error}");
    assert!(began.elapsed() < PATIENCE / 4);
}

async fn a_server_that_is_gone_answers_nobody_and_another_may_come(bus: &Setting) {
    for round in 0..5 {
        let server = echo(bus.first().serve(&commands("r1")).await.unwrap());
        bus.second().request(&commands("r1"), text("hi"), PATIENCE).await.unwrap();
        drop(server);
        let began = Instant::now();
        loop {
            match bus.second().request(&commands("r1"), text("hi"), Duration::from_millis(500)).await {
                Err(Error::NoResponders { .. }) => break,
                // The end of a server may take its way to the bus.
                Err(Error::Timeout { .. }) | Ok(_) => {}
                Err(error) => panic!("round {round}: {error}"),
            }
            assert!(began.elapsed() < PATIENCE, "round {round}: a dropped server still answers");
        }
    }
}

async fn requests_past_the_buffer_end_at_their_deadline(bus: &Setting) {
    let mut idle = bus.first().serve(&commands("r1")).await.unwrap();
    let deadline = Duration::from_secs(1);
    let mut requests = JoinSet::new();
    for n in 0..FLOOD as usize {
        let handle = bus.handles[n % bus.handles.len()].clone();
        requests.spawn(async move { handle.request(&commands("r1"), text("hi"), deadline).await.unwrap_err() });
    }
    while let Some(error) = requests.join_next().await {
        let error = error.unwrap();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
    }
    let mut waiting = 0;
    while idle.incoming.try_recv().is_ok() {
        waiting += 1;
    }
    assert!(waiting > 0 && waiting < FLOOD, "{waiting} requests were kept");
}

async fn an_abandoned_request_disturbs_no_other(bus: &Setting) {
    let mut requests = bus.first().serve(&commands("r1")).await.unwrap();
    for n in 0..20 {
        let subject = commands("r1");
        let abandoned = bus.second().request(&subject, text(format!("abandoned {n}")), PATIENCE);
        drop(timeout(Duration::from_millis(n % 4), abandoned).await);
    }
    let mut server = JoinSet::new();
    server.spawn(async move {
        while let Some(request) = requests.incoming.recv().await {
            request.answer.send(request.payload).ok();
        }
    });
    for n in 0..20 {
        let answer = bus.second().request(&commands("r1"), text(format!("kept {n}")), PATIENCE).await.unwrap();
        assert_eq!(answer, format!("kept {n}"));
    }
}

async fn a_message_over_the_limit_is_refused_with_the_limit(bus: &Setting) {
    let over = |limit| (Bytes::from(vec![b'x'; limit + 1]), Error::TooLarge { bytes: limit + 1, limit });
    let (message, expected) = over(bus.max_message_bytes);
    assert_eq!(bus.first().publish(&events("run_a"), message).await.unwrap_err(), expected);
    let (request, expected) = over(bus.max_request_bytes);
    let _server = echo(bus.second().serve(&commands("r1")).await.unwrap());
    assert_eq!(bus.first().request(&commands("r1"), request, PATIENCE).await.unwrap_err(), expected);
    assert_eq!(bus.first().request(&commands("r1"), text("small"), PATIENCE).await.unwrap(), "> small");
}

async fn the_largest_message_arrives_whole(bus: &Setting) {
    let largest: Bytes = (0..bus.max_message_bytes).map(|n| (n % 251) as u8).collect();
    let mut subscription = bus.second().subscribe(&events("run_a")).await.unwrap();
    bus.first().publish(&events("run_a"), largest.clone()).await.unwrap();
    assert!(next(&mut subscription).await == largest);
    let mut requests = bus.second().serve(&commands("r1")).await.unwrap();
    let answering = async {
        let request = requests.incoming.recv().await.unwrap();
        request.answer.send(request.payload).unwrap();
    };
    let subject = commands("r1");
    let (answer, ()) = tokio::join!(bus.first().request(&subject, largest.clone(), PATIENCE), answering);
    assert!(answer.unwrap() == largest);
    let largest: Bytes = (0..bus.max_request_bytes).map(|n| (n % 251) as u8).collect();
    let answering = async {
        let request = requests.incoming.recv().await.unwrap();
        request.answer.send(Bytes::from(request.payload.len().to_string())).unwrap();
        request.payload
    };
    let (answer, got) = tokio::join!(bus.first().request(&subject, largest.clone(), PATIENCE), answering);
    assert_eq!(answer.unwrap(), largest.len().to_string());
    assert!(got == largest);
}
