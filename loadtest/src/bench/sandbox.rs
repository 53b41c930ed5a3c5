//! Sandbox sessions at the node, without a wire, beside the Engine's own calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::try_join_all;
use hearth_sandbox::node::{DEFAULT_IMAGE, Node, NodeOptions};
use hearth_sandbox::{
    DRIVER_VARIABLES, ExecArgs, Liveness, OpenArgs, OpenResult, RunLiveness, Sandboxes, SessionArgs, available_drivers,
};
use hearth_types::{RunId, SandboxId, SystemClock};
use tokio::time::Instant;

use super::figure::Measured;
use super::paired::{Caller, Side, crowds};
use super::wire::Wire;
use super::{Found, Plan};
use crate::floors::engine::BareEngine;
use crate::floors::pipe;
use crate::latencies::Latencies;
use crate::stop::to_the_end;
use crate::{Error, machine};

/// Sessions that wait in the pool, and so the size of a burst.
const POOL: u64 = 8;
/// How long the pool may take to fill up.
const POOL_WITHIN: Duration = Duration::from_secs(60);
const OUTPUT_BYTES: u64 = 256 * 1024 * 1024;
const LOCAL: &str = "local sessions: no Docker daemon with the session image";
const OPENS: [&str; 3] = ["open_warm_p50", "open_warm_p99", "open_cold_p50"];

struct Held;

#[async_trait]
impl RunLiveness for Held {
    async fn liveness(&self, _root_run: &RunId) -> Liveness {
        Liveness::Alive
    }
}

pub(super) async fn measure(plan: &Plan, folder: &Path, found: &mut Found) -> Result<(), Error> {
    let mut engine = match BareEngine::connect(DEFAULT_IMAGE).await {
        Ok(engine) => Some(engine),
        Err(reason) => {
            plan.say(&format!("local sessions, since {reason}"));
            None
        }
    };
    measure_all(plan, folder, &mut engine, found).await
}

async fn measure_all(
    plan: &Plan,
    folder: &Path,
    engine: &mut Option<BareEngine>,
    found: &mut Found,
) -> Result<(), Error> {
    let cold = Bench::start(&folder.join("node-cold"), 0).await?;
    let measured = sessions(plan, &cold, engine, found).await;
    cold.end().await?;
    measured?;
    let many = Bench::start(&folder.join("node-many"), 0).await?;
    let measured = crowd_of_sessions(plan, &many, engine.as_mut(), found).await;
    many.end().await?;
    measured?;
    let Some(engine) = engine else {
        for name in OPENS {
            found.miss(name, LOCAL);
        }
        return Ok(());
    };
    match Bench::start(&folder.join("node-warm"), POOL).await {
        Ok(warm) => {
            let measured = warm_opens(plan, &warm, engine, found).await;
            warm.end().await?;
            measured
        }
        Err(error) => {
            for name in &OPENS[..2] {
                found.miss(name, &format!("no warm pool: {error}"));
            }
            Ok(())
        }
    }
}

/// The least that a program can do, and the least that needs a shell.
const PROGRAM: &str = "true";
const FOR_A_SHELL: &str = "true;";

/// A node inside this process. It goes with all its sessions, also when it is dropped.
pub(super) struct Bench {
    node: Arc<Node>,
    ended: bool,
}

impl Bench {
    pub(super) async fn start(state: &Path, pool: u64) -> Result<Self, Error> {
        let mut variables = BTreeMap::new();
        if pool > 0 {
            variables.insert("SANDBOX_POOL_SIZE".to_owned(), pool.to_string());
        }
        let said = |error: &dyn std::fmt::Display| Error::Sandbox(error.to_string());
        let options =
            NodeOptions::from_vars("load", state, &variables, DRIVER_VARIABLES).map_err(|error| said(&error))?;
        std::fs::create_dir_all(state).map_err(Error::io(state.display().to_string()))?;
        let host: BTreeMap<String, String> = std::env::vars().collect();
        let (drivers, _) = available_drivers(&variables, &host, &options).await.map_err(|error| said(&error))?;
        let node = Node::start(options, drivers, SystemClock::shared(), Arc::new(Held)).await;
        Ok(Self { node: Arc::new(node.map_err(|error| said(&error))?), ended: false })
    }

    /// Given up while it waits, or failed, it is ended by being dropped.
    pub(super) async fn end(mut self) -> Result<(), Error> {
        self.node.close_all().await?;
        self.ended = true;
        Ok(())
    }

    pub(super) async fn open(&self) -> Result<OpenResult, Error> {
        Ok(self.node.open(&caller(), OpenArgs { own: Some(true), ..OpenArgs::default() }).await?)
    }

    async fn close(&self, session: &SandboxId) -> Result<(), Error> {
        Ok(self.node.close(&caller(), SessionArgs { session_id: session.clone() }).await?)
    }

    /// Runs a command; how many bytes it wrote.
    pub(super) async fn exec(&self, session: &SandboxId, line: &str) -> Result<u64, Error> {
        exec(&self.node, session, line).await
    }

    /// Runs a command each time that it is called.
    fn commands(&self, session: &SandboxId, line: &'static str) -> Caller {
        let (node, session) = (self.node.clone(), session.clone());
        Arc::new(move |_, _| {
            let (node, session) = (node.clone(), session.clone());
            Box::pin(async move { exec(&node, &session, line).await.map(drop) })
        })
    }
}

async fn exec(node: &Node, session: &SandboxId, line: &str) -> Result<u64, Error> {
    let args = ExecArgs { timeout_seconds: Some(120), ..ExecArgs::new(session, line) };
    let result = node.exec(&caller(), args).await?;
    match result.exit_code {
        Some(0) => Ok(result.output_bytes),
        code => Err(Error::Answer(format!("{line:?} ended with {code:?}: {}", result.output))),
    }
}

impl Drop for Bench {
    /// An interruption drops it: its sessions are closed all the same.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let node = self.node.clone();
        let closed = to_the_end(async move { Ok(node.close_all().await?) });
        if let Err(error) = closed {
            eprintln!("   sandbox sessions may be left behind: {error}");
        }
    }
}

fn caller() -> hearth_sandbox::Caller {
    hearth_sandbox::Caller { principal: "default".to_owned(), ..hearth_sandbox::Caller::default() }
}

/// Opens without a pool, commands, output.
async fn sessions(plan: &Plan, bench: &Bench, engine: &mut Option<BareEngine>, found: &mut Found) -> Result<(), Error> {
    if let Some(engine) = engine.as_mut() {
        plan.say("cold opens");
        found.put("open_cold_p50", cold_opens(plan, bench, engine).await?);
    }
    let session = bench.open().await?.session_id;
    plan.say("commands");
    let (mut ours, mut floor) = (Side::default(), Side::default());
    let container = match engine.as_mut() {
        Some(engine) => Some(engine.start().await?.0),
        None => None,
    };
    let mut in_shell = Side::default();
    for line in [PROGRAM, FOR_A_SHELL] {
        for _ in 0..20 {
            bench.exec(&session, line).await?;
        }
    }
    for _ in 0..plan.rounds(15) {
        ours.calls(40, &bench.commands(&session, PROGRAM)).await?;
        in_shell.calls(40, &bench.commands(&session, FOR_A_SHELL)).await?;
        if let (Some(engine), Some(container)) = (engine.as_ref(), &container) {
            floor.round(3, async |_| engine.exec(container, PROGRAM).await.map(drop)).await?;
        }
    }
    let local = |measured| Measured { remark: Some(LOCAL), ..measured };
    let of = |side: &Side, quantile| match engine {
        Some(_) => side.over(&floor, quantile),
        None => local(Measured::alone(side.ms(quantile))),
    };
    found.put("exec_p50", of(&ours, 0.5));
    found.put("exec_p99", of(&ours, 0.99));
    found.put("exec_shell_p50", of(&in_shell, 0.5));
    plan.say("commands over gRPC");
    let wire = Wire::serve(&bench.node).await?;
    let (call, mut over_grpc) = (wire.commands(&session, PROGRAM), Side::default());
    for _ in 0..20 {
        call(0, 0).await?;
    }
    for _ in 0..plan.rounds(15) {
        over_grpc.calls(40, &call).await?;
    }
    found.put("exec_grpc_p50", of(&over_grpc, 0.5));
    drop(wire);
    plan.say("output");
    let (drained, cpu) = output(plan, bench, &session, engine.as_ref()).await?;
    found.put("output_mb_s", if engine.is_some() { drained } else { local(drained) });
    match cpu {
        Some(cpu) => found.put("output_cpu_s_gb", cpu),
        None => found.miss("output_cpu_s_gb", LOCAL),
    }
    bench.close(&session).await
}

async fn cold_opens(plan: &Plan, bench: &Bench, engine: &mut BareEngine) -> Result<Measured, Error> {
    let (mut ours, mut floor) = (Side::default(), Side::default());
    for round in 0..=plan.rounds(8) {
        let (mut our_times, mut floor_times) = (Latencies::default(), Latencies::default());
        let began = Instant::now();
        let opened = bench.open().await?;
        our_times.record(began.elapsed());
        bench.close(&opened.session_id).await?;
        let (name, took) = engine.start().await?;
        floor_times.record(took);
        engine.remove(&name).await?;
        // The first ones fill caches.
        if round > 0 {
            ours.keep(our_times);
            floor.keep(floor_times);
        }
    }
    Ok(ours.over(&floor, 0.5))
}

/// MB a second and, in containers, CPU seconds for a GB.
async fn output(
    plan: &Plan,
    bench: &Bench,
    session: &SandboxId,
    engine: Option<&BareEngine>,
) -> Result<(Measured, Option<Measured>), Error> {
    let line = format!("yes 'a line of output, of which there is far too much' | head -c {OUTPUT_BYTES}");
    let container = format!("hearth-{session}");
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    let (mut our_cpu, mut floor_cpu) = (Vec::new(), Vec::new());
    #[allow(clippy::cast_precision_loss, reason = "a number of bytes")]
    let rate = |bytes: u64, took: Duration| bytes as f64 / 1e6 / took.as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "a number of bytes")]
    let for_a_gb = |seconds: f64, bytes: u64| seconds / (bytes as f64 / 1e9).max(1e-9);
    for _ in 0..plan.rounds(5) {
        let inside = async || match engine {
            Some(engine) => Ok::<_, Error>(engine.used(&container).await?.0),
            None => Ok(0.0),
        };
        let (cpu, inside_before, began) = (own_cpu(false), inside().await?, Instant::now());
        let bytes = bench.exec(session, &line).await?;
        ours.push(rate(bytes, began.elapsed()));
        our_cpu.push(for_a_gb(own_cpu(false) - cpu + inside().await? - inside_before, bytes));
        let cpu = own_cpu(true);
        let (took, bytes) = pipe::drain(&line).await?;
        floor.push(rate(bytes, took));
        floor_cpu.push(for_a_gb(own_cpu(true) - cpu, bytes));
    }
    let of = |rates: &[f64]| crate::latencies::middle(rates).map_or(0.0, |(middle, _)| middle);
    let compared = |ours: &[f64], floor: &[f64]| {
        let ratios: Vec<f64> = ours.iter().zip(floor).map(|(ours, floor)| ours / floor.max(1e-6)).collect();
        super::paired::compare(of(ours), of(floor), &ratios)
    };
    Ok((compared(&ours, &floor), engine.map(|_| compared(&our_cpu, &floor_cpu))))
}

/// CPU seconds of this process and, if they count, of those that it has waited for.
fn own_cpu(children: bool) -> f64 {
    machine::cpu_seconds_with(std::process::id(), children).unwrap_or_default()
}

/// Many sessions at once: what one holds while it is idle, and how many commands all run.
async fn crowd_of_sessions(
    plan: &Plan,
    bench: &Bench,
    engine: Option<&mut BareEngine>,
    found: &mut Found,
) -> Result<(), Error> {
    const MANY: usize = 64;
    const FIGURES: [&str; 2] = ["execs_per_s_64", "session_bytes"];
    let Some(engine) = engine else {
        FIGURES.iter().for_each(|name| found.miss(name, LOCAL));
        return Ok(());
    };
    plan.say(&format!("{MANY} sessions"));
    // The first takes along what the node holds for any number.
    let first = bench.open().await?.session_id;
    bench.exec(&first, PROGRAM).await?;
    let held = || machine::private_bytes(std::process::id()).unwrap_or_default();
    let before = held();
    let mut sessions = vec![first];
    while sessions.len() < MANY {
        let opened = bench.open().await?.session_id;
        bench.exec(&opened, PROGRAM).await?;
        sessions.push(opened);
    }
    #[allow(clippy::cast_precision_loss, reason = "a number of bytes")]
    let in_node = held().saturating_sub(before) as f64 / (MANY - 1) as f64;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for session in sessions.iter().rev().take(8) {
        let (name, _) = engine.start().await?;
        #[allow(clippy::cast_precision_loss, reason = "a number of bytes")]
        let of = |bytes: u64| bytes as f64;
        ours.push(of(engine.used(&format!("hearth-{session}")).await?.1) + in_node);
        bare.push(of(engine.used(&name).await?.1));
        engine.remove(&name).await?;
    }
    let of = |bytes: &[f64]| crate::latencies::middle(bytes).map_or(0.0, |(middle, _)| middle);
    let ratios: Vec<f64> = ours.iter().zip(&bare).map(|(ours, bare)| ours / bare.max(1.0)).collect();
    found.put("session_bytes", super::paired::compare(of(&ours), of(&bare), &ratios));

    let engine = Arc::new(engine.calls());
    let sessions = Arc::new(sessions);
    let chosen =
        |sessions: &[SandboxId], caller: u64| sessions[usize::try_from(caller).unwrap_or(0) % sessions.len()].clone();
    let commands: Caller = {
        let (node, sessions) = (bench.node.clone(), sessions.clone());
        Arc::new(move |caller, _| {
            let (node, session) = (node.clone(), chosen(&sessions, caller));
            Box::pin(async move { exec(&node, &session, PROGRAM).await.map(drop) })
        })
    };
    let bare: Caller = Arc::new(move |caller, _| {
        let (engine, container) = (engine.clone(), format!("hearth-{}", chosen(&sessions, caller)));
        Box::pin(async move { engine.exec(&container, PROGRAM).await.map(drop) })
    });
    let measured = crowds(MANY as u64, plan.rounds(3), Duration::from_millis(2_000), &commands, &bare).await;
    found.keep("execs_per_s_64", measured);
    Ok(())
}

/// Bursts as large as the pool, each once it is full again.
async fn warm_opens(plan: &Plan, bench: &Bench, engine: &mut BareEngine, found: &mut Found) -> Result<(), Error> {
    plan.say("warm opens");
    let (mut ours, mut floor) = (Side::default(), Side::default());
    for round in 0..=plan.rounds(5) {
        if !filled(bench).await? {
            for name in &OPENS[..2] {
                found.miss(name, "the pool was not full within a minute");
            }
            return Ok(());
        }
        let opens = (0..POOL).map(async |_| {
            let began = Instant::now();
            let opened = bench.open().await?;
            Ok::<_, Error>((began.elapsed(), opened))
        });
        let opened = try_join_all(opens).await?;
        let (mut our_times, mut floor_times) = (Latencies::default(), Latencies::default());
        opened.iter().filter(|(_, opened)| opened.warm).for_each(|(took, _)| our_times.record(*took));
        for (_, opened) in &opened {
            bench.close(&opened.session_id).await?;
        }
        let (name, took) = engine.start().await?;
        floor_times.record(took);
        engine.remove(&name).await?;
        if round > 0 {
            ours.keep(our_times);
            floor.keep(floor_times);
        }
    }
    found.put("open_warm_p50", ours.over(&floor, 0.5));
    found.put("open_warm_p99", ours.over(&floor, 0.99));
    Ok(())
}

/// Waits until the pool has as many sessions as it can.
async fn filled(bench: &Bench) -> Result<bool, Error> {
    let until = Instant::now() + POOL_WITHIN;
    let full = |node: &Node| node.pooled().len() as u64 >= POOL;
    if !full(&bench.node) {
        // The pool keeps what was asked for.
        let opened = bench.open().await?;
        bench.close(&opened.session_id).await?;
    }
    while !full(&bench.node) {
        if Instant::now() > until {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn with_two_sessions(folder: &Path) -> (Bench, Arc<Node>) {
        let bench = Bench::start(folder, 0).await.unwrap();
        let (one, two) = tokio::join!(bench.open(), bench.open());
        assert_ne!(one.unwrap().session_id, two.unwrap().session_id);
        let node = bench.node.clone();
        assert_eq!(node.list(&caller()).await.unwrap().len(), 2);
        (bench, node)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_left_of_a_bench_that_is_given_up_while_it_works_opens_or_ends() {
        // Local sessions may run as another user, who has to come through.
        let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let folder = tempfile::Builder::new().permissions(open_to_all).tempdir().unwrap();
        let (bench, node) = with_two_sessions(&folder.path().join("working")).await;
        drop(bench);
        assert!(node.list(&caller()).await.unwrap().is_empty(), "dropped while it worked");

        let (bench, node) = with_two_sessions(&folder.path().join("opening")).await;
        let opening = async { bench.open().await.map(drop) };
        tokio::time::timeout(Duration::from_millis(1), opening).await.ok();
        drop(bench);
        assert!(node.list(&caller()).await.unwrap().is_empty(), "dropped while it opened");

        let (bench, node) = with_two_sessions(&folder.path().join("ending")).await;
        assert!(futures::poll!(Box::pin(bench.end())).is_pending(), "it takes time");
        assert!(node.list(&caller()).await.unwrap().is_empty(), "dropped while it ended");
    }
}
