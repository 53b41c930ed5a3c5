//! `cargo xtask clients`: clients that others wrote, of MCP and gRPC, against a sandbox node and a replica.
//!
//! Each is installed in a pinned version under `target/clients`; one that cannot be installed, because its
//! registry is out of reach or its language is not here, is skipped and said so.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::failure::Failure;
use crate::process;

const PYTHON: [(&str, &str); 2] = [("python_v1.py", "mcp==1.30.0"), ("python_v2.py", "mcp==2.3.0")];
const GRPC: &str = "grpcio-tools==1.85.1";
const INSPECTOR: &str = "@modelcontextprotocol/inspector@2.12.0";
const TOKEN: &str = "clients-0123456789abcdef0123456789abcdef";
/// How often a server that starts is looked at, and the pause between.
const LOOKS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(50);

pub fn run(root: &Path) -> Result<(), Failure> {
    let folder = root.join("target/clients");
    std::fs::create_dir_all(&folder).map_err(|source| Failure::File { path: folder.clone(), source })?;
    let program = program(root)?;
    let scripts = root.join("tests/clients");
    for (script, package) in PYTHON {
        let Some(python) = python(&folder, package) else { continue };
        // Short, so that a session's expiry can be waited for.
        let node = Server::node(&program, &folder, "5s")?;
        process::run(Command::new(&python).arg(scripts.join(script)).args([&node.url(), TOKEN, "node"]))?;
        drop(node);
        let replica = Server::replica(&program, &folder)?;
        process::run(Command::new(&python).arg(scripts.join(script)).args([&replica.url(), TOKEN, "replica"]))?;
        println!("{package}: ok");
    }
    if let Some(python) = python(&folder, GRPC) {
        let replica = Server::replica(&program, &folder)?;
        let mut client = Command::new(&python);
        client.arg(scripts.join("grpc_python.py")).args([&replica.address(), TOKEN]).arg(root.join("proto"));
        process::run(&mut client)?;
        println!("{GRPC}: ok");
    }
    if let Some(inspector) = inspector(&folder) {
        let node = Server::node(&program, &folder, "15m")?;
        let script = scripts.join("inspector.py");
        process::run(Command::new("python3").arg(script).args([&node.url(), TOKEN]).arg(inspector))?;
        println!("{INSPECTOR}: ok");
    }
    Ok(())
}

pub(crate) fn program(root: &Path) -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os("HEARTH_BIN") {
        return Ok(path.into());
    }
    process::run(process::cargo(root).args(["build", "--quiet", "--package", "hearth"]))?;
    Ok(root.join("target/debug/hearth"))
}

/// The interpreter of an environment that has the package.
pub(crate) fn python(folder: &Path, package: &str) -> Option<PathBuf> {
    let place = folder.join(package.replace("==", "-"));
    let python = place.join("bin/python");
    let make = || {
        process::run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
        process::run(Command::new(&python).args(["-m", "pip", "install", "--quiet", package]))
    };
    made(package, &place, make).then_some(python)
}

fn inspector(folder: &Path) -> Option<PathBuf> {
    let place = folder.join("inspector-2.12.0");
    let install = || {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
        process::run(npm.arg(&place).arg(INSPECTOR))
    };
    made(INSPECTOR, &place, install).then(|| place.join("node_modules/.bin/mcp-inspector"))
}

/// Whether it is installed; what was begun and not finished is begun anew.
fn made(what: &str, place: &Path, make: impl FnOnce() -> Result<(), Failure>) -> bool {
    let mark = place.join("complete");
    if mark.exists() {
        return true;
    }
    std::fs::remove_dir_all(place).ok();
    match make().and_then(|()| std::fs::write(&mark, "").map_err(|source| Failure::File { path: mark.clone(), source }))
    {
        Ok(()) => true,
        Err(failure) => {
            println!("{what} is SKIPPED: it cannot be installed here: {failure}");
            false
        }
    }
}

/// A node or a replica with nothing but a token. Dropping it ends it.
struct Server {
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl Server {
    fn node(program: &Path, folder: &Path, idle: &str) -> Result<Self, Failure> {
        Self::start(program, folder, |command, address, state| {
            command
                .arg("node")
                .env("SANDBOX_AUTH_TOKEN", TOKEN)
                .env("SANDBOX_LISTEN_ADDR", address)
                .env("SANDBOX_STATE_DIR", state.join("state"))
                .env("SANDBOX_WORKSPACE_ROOT", state.join("workspaces"))
                .env("SANDBOX_SESSION_IDLE_TTL", idle)
                .env("SANDBOX_SWEEP_INTERVAL", "1s");
        })
    }

    fn replica(program: &Path, folder: &Path) -> Result<Self, Failure> {
        Self::start(program, folder, |command, address, state| {
            command.args(["dev", "--token", TOKEN, "--listen", address, "--data"]).arg(state.join("data"));
        })
    }

    fn start(program: &Path, folder: &Path, fill: impl FnOnce(&mut Command, &str, &Path)) -> Result<Self, Failure> {
        let state = folder.join(format!("server-{}", std::process::id()));
        let port = TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|source| Failure::File { path: state.clone(), source })?
            .port();
        let mut command = Command::new(program);
        // The tester's own settings must not reach the server.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["HEARTH_", "SANDBOX_", "OTEL_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        fill(&mut command, &format!("127.0.0.1:{port}"), &state);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        std::fs::create_dir_all(state.join("workspaces"))
            .map_err(|source| Failure::File { path: state.clone(), source })?;
        let line = process::line(&command);
        let failed = |reason: String| Failure::Program { line: line.clone(), reason };
        let child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let server = Self { child, port, folder: state };
        for _ in 0..LOOKS {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            sleep(PAUSE);
        }
        Err(failed("does not listen in time".to_owned()))
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.address())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}
