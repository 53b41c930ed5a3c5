//! A world to reach from a session with egress: a namespace of its own with a public and a private address.

use std::process::{Child, Command, Stdio};

/// Addresses for documentation: public, and nobody's.
pub const PUBLIC: &str = "203.0.113.2";
pub const PRIVATE: &str = "10.213.7.2";
pub const PORT: u16 = 8_417;

pub struct Outside {
    name: String,
    server: Child,
}

fn ip(line: &str) -> Result<(), String> {
    let output = Command::new("ip").args(line.split(' ')).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {line}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

impl Outside {
    /// An error says why it cannot be had on this host.
    pub fn open() -> Result<Self, String> {
        let short = std::process::id() % 100_000;
        let (name, near, far) = (format!("hxt{short}"), format!("hxn{short}"), format!("hxf{short}"));
        ip(&format!("netns add {name}"))?;
        let made = [
            format!("link add {near} type veth peer name {far}"),
            format!("link set {far} netns {name}"),
            format!("addr add 203.0.113.1/30 dev {near}"),
            format!("addr add 10.213.7.1/30 dev {near}"),
            format!("link set {near} up"),
            format!("-n {name} addr add {PUBLIC}/30 dev {far}"),
            format!("-n {name} addr add {PRIVATE}/30 dev {far}"),
            format!("-n {name} link set {far} up"),
            format!("-n {name} link set lo up"),
            format!("-n {name} route add default via 203.0.113.1"),
        ]
        .iter()
        .try_for_each(|line| ip(line));
        let listen = format!(
            "import socket\ns = socket.socket()\ns.bind(('0.0.0.0', {PORT}))\ns.listen(64)\nwhile True:\n    s.accept()[0].close()\n"
        );
        let server = made.and_then(|()| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &name, "python3", "-c", &listen]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().map_err(|error| error.to_string())
        });
        match server {
            Ok(server) => Ok(Self { name, server }),
            Err(reason) => {
                ip(&format!("netns del {name}")).ok();
                Err(reason)
            }
        }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.server.kill().ok();
        self.server.wait().ok();
        ip(&format!("netns del {}", self.name)).ok();
    }
}
