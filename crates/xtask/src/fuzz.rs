//! `cargo xtask fuzz`: the HTTP surface, asked by schemathesis from the server's own description.
//!
//! It fails on a server error that is not a stated refusal, and on anything of another tenant. What it
//! needs is installed in a pinned version under `target/fuzz`.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::failure::Failure;
use crate::{clients, process};

const PACKAGE: &str = "schemathesis==4.32.5";
const SECONDS: u32 = 240;
/// Tenant, token and the token's SHA-256.
const CALLERS: [(&str, &str, &str); 2] = [
    (
        "one",
        "fuzz-one-0123456789abcdef0123456789abcdef",
        "f6f492925ee01b76943d0f52ba5be56dcfa4c8c7e4b4f0db7d51e21cf965ee79",
    ),
    (
        "two",
        "fuzz-two-0123456789abcdef0123456789abcdef",
        "5f129a02821544506a0d9d88724bbde7030823f34a11457ad32ee603f90b5a60",
    ),
];
/// How often a server that starts is looked at, and the pause between.
const LOOKS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(50);

pub fn run(root: &Path, args: &[String]) -> Result<(), Failure> {
    let seconds = match args {
        [] => SECONDS,
        [seconds] => seconds
            .parse()
            .map_err(|_| Failure::Usage(format!("`fuzz` takes a number of seconds, and was given {seconds:?}")))?,
        _ => return Err(Failure::Usage("`fuzz` takes one argument at the most: a number of seconds".to_owned())),
    };
    let folder = root.join("target/fuzz");
    std::fs::create_dir_all(&folder).map_err(|source| Failure::File { path: folder.clone(), source })?;
    let program = clients::program(root)?;
    let Some(python) = clients::python(&folder, PACKAGE) else {
        return Err(Failure::Usage("schemathesis cannot be installed here".to_owned()));
    };
    let server = Server::start(&program, &folder)?;
    let [(_, token, _), (_, other, _)] = CALLERS;
    let mut asking = Command::new(python);
    asking.current_dir(&folder).arg(root.join("tests/fuzz/run.py"));
    process::run(asking.args([&server.url(), token, other, &seconds.to_string()]))
}

/// A server with a fresh folder. Dropping it ends it.
struct Server {
    child: Child,
    port: u16,
    folder: std::path::PathBuf,
}

impl Server {
    fn start(program: &Path, folder: &Path) -> Result<Self, Failure> {
        let folder = folder.join(format!("server-{}", std::process::id()));
        let file = |source| Failure::File { path: folder.clone(), source };
        std::fs::create_dir_all(&folder).map_err(file)?;
        let tokens: String = CALLERS
            .iter()
            .map(|(tenant, _, digest)| {
                format!(
                    "[[token]]\nsha256 = \"{digest}\"\ntenant = \"{tenant}\"\nsubject = \"fuzz\"\nrole = \"operator\"\n"
                )
            })
            .collect();
        std::fs::write(folder.join("tokens.toml"), tokens).map_err(file)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(file)?;
        let port = listener.local_addr().map_err(file)?.port();
        drop(listener);
        let log = std::fs::File::create(folder.join("output.log")).map_err(file)?;
        let mut command = Command::new(program);
        // The caller's own settings must not reach the server; `HEARTH_BIN` is none.
        for (name, _) in std::env::vars_os() {
            if ["HEARTH_", "SANDBOX_", "OTEL_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command
            .args(["dev", "--listen", &format!("127.0.0.1:{port}"), "--data"])
            .arg(folder.join("data"))
            .env("HEARTH_TOKENS_FILE", folder.join("tokens.toml"))
            .env("SANDBOX_DRIVER", "local")
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(file)?)
            .stderr(log);
        let line = process::line(&command);
        let failed = |reason: String| Failure::Program { line: line.clone(), reason };
        let child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let server = Self { child, port, folder };
        for _ in 0..LOOKS {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            sleep(PAUSE);
        }
        Err(failed("does not listen in time".to_owned()))
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_dir_all(self.folder.join("data")).ok();
    }
}
