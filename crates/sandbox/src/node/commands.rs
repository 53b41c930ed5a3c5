//! `exec`, `poll` and `kill`. A command is followed by a task of its own until it ends, so that it counts
//! as use of the session even when its caller has gone away.

use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use hearth_telemetry::names::{field, span};
use hearth_types::{ExecId, Fault, FaultCode};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::init::{ExecReport, ExecSpec, InitClient, MAX_COMMAND_BYTES, MAX_OUTPUT_BYTES};
use crate::node::metrics::EXEC_SECONDS;
use crate::node::session::{Live, Session, Use};
use crate::node::{Inner, text, variables};
use crate::{Caller, Error, ErrorKind, ExecArgs, ExecResult, KillArgs, PollArgs, Work, session_home};

const DEFAULT_TIMEOUT_SECONDS: u64 = 30;
const MAX_TIMEOUT_SECONDS: u64 = 3_600;
const DEFAULT_OUTPUT_BYTES: u64 = 1024 * 1024;
const MAX_STDIN_BYTES: usize = 8 * 1024 * 1024;
const MAX_CWD_BYTES: usize = 4_095;
pub(crate) const MAX_POLL_MS: u64 = 3_600_000;
/// One question of how a command goes; then the next.
const WAIT_SLICE: Duration = Duration::from_secs(60);
/// What a command may last past its time-out: two seconds from TERM to KILL, and a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Times in a row that the init may be out of reach before that is believed.
const MAX_MISSES: u32 = 5;
const MISS_PAUSE: Duration = Duration::from_millis(200);

pub(crate) async fn exec(inner: &Arc<Inner>, caller: &Caller, args: ExecArgs) -> Result<ExecResult, Fault> {
    let began = Instant::now();
    let background = args.background.unwrap_or(false);
    let (session, live) = inner.find(caller, &args.session_id).await?;
    let mut spec = spec(inner, caller, args, &live.started.workspace_path)?;
    let read_only = matches!(session.record.spec.work, Work::Durable { read_only: true, .. });
    spec.env.entry("HOME".to_owned()).or_insert_with(|| session_home(&live.started.workspace_path, read_only));
    let in_use = session.begin_exec(&inner.clock, &spec.exec_id, caller.run.as_ref())?;
    let span = tracing::info_span!(
        span::SANDBOX_EXEC,
        { field::SANDBOX_SESSION_ID } = %session.id(),
        { field::EXEC_ID } = %spec.exec_id,
        { field::EXIT_CODE } = tracing::field::Empty,
    );
    let node = inner.clone();
    let work = async move {
        if background {
            in_background(node, session, live, spec, in_use).await
        } else {
            to_the_end(node, session, live, spec, in_use).await
        }
    };
    let finished = hearth_telemetry::task::finish("sandbox-exec", work.instrument(span)).await;
    let result = finished.unwrap_or_else(|| Err(Fault::internal("the task of a command ended without a result")));
    if !background {
        EXEC_SECONDS.with_label_values(&[outcome(&result)]).observe(began.elapsed().as_secs_f64());
    }
    result
}

fn outcome(result: &Result<ExecResult, Fault>) -> &'static str {
    match result {
        Ok(result) if result.timed_out => "timed_out",
        Ok(result) if result.exit_code == Some(0) => "zero",
        Ok(_) => "nonzero",
        Err(_) => "failed",
    }
}

async fn to_the_end(
    inner: Arc<Inner>,
    session: Arc<Session>,
    live: Live,
    spec: ExecSpec,
    in_use: Use,
) -> Result<ExecResult, Fault> {
    let ended = match live.client.run(&spec, spec.timeout + PATIENCE).await {
        Ok(report) if !report.running() => Ok(report),
        Ok(_) => follow(&live.client, &spec.exec_id, spec.timeout + PATIENCE).await,
        // Whether it was started is not known; the same id again starts it once at the most.
        Err(error) if error.kind() == ErrorKind::Unavailable => match live.client.exec(&spec).await {
            Ok(_) => follow(&live.client, &spec.exec_id, spec.timeout + PATIENCE).await,
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    let result = match ended {
        Ok(report) => {
            if let Some(code) = report.exit_code {
                tracing::Span::current().record(field::EXIT_CODE, code);
            }
            Ok(shown(spec.exec_id, report))
        }
        Err(error) => Err(inner.examine(&session, error).await),
    };
    drop(in_use);
    result
}

async fn in_background(
    inner: Arc<Inner>,
    session: Arc<Session>,
    live: Live,
    spec: ExecSpec,
    in_use: Use,
) -> Result<ExecResult, Fault> {
    let report = match live.client.exec(&spec).await {
        Ok(report) => report,
        Err(error) => return Err(inner.examine(&session, error).await),
    };
    if report.running() {
        follow_on(&session, &live, spec.exec_id.clone(), spec.timeout + PATIENCE, in_use);
    }
    Ok(shown(spec.exec_id, report))
}

/// A command that an earlier process started.
pub(crate) fn follow_again(inner: &Arc<Inner>, session: &Arc<Session>, live: &Live, exec_id: ExecId) {
    match session.begin_exec(&inner.clock, &exec_id, None) {
        Ok(in_use) => {
            follow_on(session, live, exec_id, Duration::from_secs(MAX_TIMEOUT_SECONDS) + PATIENCE, in_use);
        }
        Err(fault) => tracing::warn!(session = %session.id(), %exec_id, %fault, "a command is not followed any more"),
    }
}

fn follow_on(session: &Arc<Session>, live: &Live, exec_id: ExecId, patience: Duration, in_use: Use) {
    let (client, session) = (live.client.clone(), session.id().clone());
    let work = async move {
        if let Err(error) = follow(&client, &exec_id, patience).await {
            tracing::debug!(%session, %exec_id, error = &error as &dyn std::error::Error, "a command cannot be followed");
        }
        drop(in_use);
    };
    drop(hearth_telemetry::task::spawn("sandbox-follow", work));
}

/// Waits for the end of a command that has started.
async fn follow(client: &InitClient, exec_id: &ExecId, patience: Duration) -> Result<ExecReport, Error> {
    let until = Instant::now() + patience;
    let mut misses = 0;
    while Instant::now() < until {
        match client.wait(exec_id, WAIT_SLICE).await {
            Ok(report) if !report.running() => return Ok(report),
            Ok(_) => misses = 0,
            Err(error) if error.kind() == ErrorKind::Unavailable && misses < MAX_MISSES => {
                misses += 1;
                tokio::time::sleep(MISS_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(ErrorKind::Deadline, "the command did not end after its time-out; poll it, or close the session"))
}

pub(crate) async fn poll(inner: &Arc<Inner>, caller: &Caller, args: &PollArgs) -> Result<ExecResult, Fault> {
    let timeout_ms = args.timeout_ms.unwrap_or(0);
    if timeout_ms > MAX_POLL_MS {
        return Err(Fault::invalid("timeout_ms", timeout_ms, &format!("0 to {MAX_POLL_MS}")));
    }
    let (session, live) = inner.find(caller, &args.session_id).await?;
    let report = match timeout_ms {
        0 => live.client.poll(&args.exec_id).await,
        ms => wait(&live.client, &args.exec_id, Duration::from_millis(ms)).await,
    };
    match report {
        Ok(report) => Ok(shown(args.exec_id.clone(), report)),
        Err(error) => Err(no_such_exec(inner.examine(&session, error).await)),
    }
}

async fn wait(client: &InitClient, exec_id: &ExecId, span: Duration) -> Result<ExecReport, Error> {
    let until = Instant::now() + span;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let report = client.wait(exec_id, left.min(WAIT_SLICE)).await?;
        if !report.running() || left <= WAIT_SLICE {
            return Ok(report);
        }
    }
}

pub(crate) async fn kill(inner: &Arc<Inner>, caller: &Caller, args: &KillArgs) -> Result<ExecResult, Fault> {
    let (session, live) = inner.find(caller, &args.session_id).await?;
    match live.client.kill(&args.exec_id).await {
        Ok(report) => Ok(shown(args.exec_id.clone(), report)),
        Err(error) => Err(no_such_exec(inner.examine(&session, error).await)),
    }
}

fn no_such_exec(fault: Fault) -> Fault {
    match fault.code {
        FaultCode::NotFound => Fault::new(
            FaultCode::NotFound,
            "the session has no result for this exec_id: it never ran there, or its result is no longer kept",
        ),
        _ => fault,
    }
}

fn shown(exec_id: ExecId, report: ExecReport) -> ExecResult {
    let cut = report.truncated || report.running();
    let output = text::show(report.output, cut);
    ExecResult {
        exec_id,
        output: output.content,
        encoding: output.base64.then(|| "base64".to_owned()),
        exit_code: report.exit_code,
        signal: report.signal,
        timed_out: report.timed_out,
        oom_killed: report.oom_killed,
        truncated: report.truncated,
        output_bytes: report.output_bytes,
        duration_ms: report.duration_ms,
    }
}

/// Checks the arguments and makes of them what the init takes.
fn spec(inner: &Inner, caller: &Caller, args: ExecArgs, workspace_path: &str) -> Result<ExecSpec, Fault> {
    let seconds = args.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    if !(1..=MAX_TIMEOUT_SECONDS).contains(&seconds) {
        return Err(Fault::invalid("timeout_seconds", seconds, &format!("1 to {MAX_TIMEOUT_SECONDS}")));
    }
    let max_output_bytes = args.max_output_bytes.unwrap_or(DEFAULT_OUTPUT_BYTES);
    if !(1..=MAX_OUTPUT_BYTES).contains(&max_output_bytes) {
        return Err(Fault::invalid("max_output_bytes", max_output_bytes, &format!("1 to {MAX_OUTPUT_BYTES}")));
    }
    if args.command.trim().is_empty() || args.command.contains('\0') {
        return Err(Fault::invalid("command", &args.command, "a shell command, not empty and without NUL"));
    }
    if args.command.len() > MAX_COMMAND_BYTES {
        let allowed = format!("at most {MAX_COMMAND_BYTES} bytes; write a longer script to a file and run that");
        return Err(Fault::invalid("command", format!("{} bytes", args.command.len()), &allowed));
    }
    if let Some(cwd) = &args.cwd {
        check_cwd(cwd, workspace_path)?;
    }
    if let Some(stdin) = &args.stdin
        && stdin.len() > MAX_STDIN_BYTES
    {
        let message = format!("`stdin` has {} bytes; at most {MAX_STDIN_BYTES} go: write a file", stdin.len());
        return Err(Fault::new(FaultCode::PayloadTooLarge, message));
    }
    let env = variables::merged(args.env, &caller.secrets, inner.options.allow_env_injection)?;
    Ok(ExecSpec {
        exec_id: args.exec_id.unwrap_or_else(ExecId::generate),
        command: args.command,
        cwd: args.cwd,
        env,
        stdin: args.stdin.map(String::into_bytes),
        timeout: Duration::from_secs(seconds),
        max_output_bytes,
    })
}

/// A folder inside the workspace, by its text. What it leads to is the session's own affair: a command
/// may change its folder to anything that the session shows it.
fn check_cwd(cwd: &str, workspace_path: &str) -> Result<(), Fault> {
    let refuse = || Fault::invalid("cwd", cwd, &format!("a folder inside {workspace_path}"));
    if cwd.is_empty() || cwd.len() > MAX_CWD_BYTES || cwd.contains('\0') {
        return Err(refuse());
    }
    let path = Path::new(cwd);
    let inside = match path.strip_prefix(workspace_path).or_else(|_| path.strip_prefix("/work")) {
        Ok(inside) => inside,
        Err(_) if path.is_absolute() => return Err(refuse()),
        Err(_) => path,
    };
    let mut depth = 0_i32;
    for component in inside.components() {
        depth += match component {
            Component::Normal(_) => 1,
            Component::ParentDir => -1,
            Component::CurDir => 0,
            Component::RootDir | Component::Prefix(_) => return Err(refuse()),
        };
        if depth < 0 {
            return Err(refuse());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_outside_of_the_workspace_is_no_cwd() {
        for good in ["src", "./a/../b", "/work", "/work/src", "/srv/ws/build/x"] {
            assert!(check_cwd(good, "/srv/ws/build").is_ok(), "{good}");
        }
        for bad in ["", "..", "a/../..", "/", "/etc", "/work/../etc", "/workshop", "a\0b"] {
            assert_eq!(check_cwd(bad, "/srv/ws/build").unwrap_err().code, FaultCode::InvalidArgument, "{bad:?}");
        }
    }

    #[test]
    fn half_a_character_at_the_cap_is_left_out_and_said_so() {
        let report = ExecReport {
            output: b"a\xe2\x82".to_vec(),
            output_bytes: 4,
            truncated: true,
            exit_code: Some(0),
            signal: None,
            timed_out: false,
            killed: false,
            oom_killed: false,
            duration_ms: 1,
        };
        let result = shown(ExecId::generate(), report);
        assert_eq!((result.output.as_str(), result.truncated, result.encoding), ("a", true, None));
    }
}
