//! What is there on this machine: processes and containers of the demo, looked for from outside.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const DOCKER_TIMEOUT: Duration = Duration::from_secs(5);
/// Of the engine's answer; a list of our containers is far shorter.
const DOCKER_ANSWER_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub command: String,
}

/// Processes that carry one of the marks (a folder, a session's id) in their command line, folder or
/// environment, and their descendants. This process and those in `known` are left out.
pub fn processes(marks: &[String], known: &[i32]) -> Vec<Process> {
    let all: Vec<(Process, bool)> = process_ids().filter_map(|pid| look(pid, marks)).collect();
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let apart: HashSet<i32> = known.iter().copied().chain([own]).collect();
    let mut ours: HashSet<i32> =
        all.iter().filter(|(process, marked)| *marked && !apart.contains(&process.pid)).map(|(p, _)| p.pid).collect();
    loop {
        let before = ours.len();
        for (process, _) in &all {
            if ours.contains(&process.parent) && !apart.contains(&process.pid) {
                ours.insert(process.pid);
            }
        }
        if ours.len() == before {
            break;
        }
    }
    all.into_iter().map(|(process, _)| process).filter(|process| ours.contains(&process.pid)).collect()
}

fn process_ids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process, and whether it carries a mark. `None` once it is gone, or is a zombie: that runs no more.
fn look(pid: i32, marks: &[String]) -> Option<(Process, bool)> {
    let folder = Path::new("/proc").join(pid.to_string());
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let (state, parent) = (fields.next()?, fields.next()?.parse().ok()?);
    if state == "Z" || state == "X" {
        return None;
    }
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap_or_default();
    let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
    let environment = String::from_utf8_lossy(&read("environ")).into_owned();
    let cwd = std::fs::read_link(folder.join("cwd")).map(|path| path.display().to_string()).unwrap_or_default();
    let marked =
        marks.iter().any(|mark| [&command, &environment, &cwd].iter().any(|text| text.contains(mark.as_str())));
    Some((Process { pid, parent, command: command.trim().to_owned() }, marked))
}

/// Names of the containers, running or not, of a sandbox session. `None` where no engine answers.
pub async fn containers(session: &str) -> Option<Vec<String>> {
    let filters = format!("%7B%22label%22%3A%5B%22hearth.session%3D{session}%22%5D%7D");
    names(&docker("GET", &format!("/containers/json?all=1&filters={filters}")).await?)
}

pub async fn remove_container(name: &str) {
    docker("DELETE", &format!("/containers/{name}?force=1")).await;
}

async fn docker(method: &str, path: &str) -> Option<String> {
    let socket = match std::env::var("DOCKER_HOST") {
        Ok(host) => host.strip_prefix("unix://")?.to_owned(),
        Err(_) => "/var/run/docker.sock".to_owned(),
    };
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await.ok()?;
        // HTTP/1.0: the engine closes when it has said all, and says it in one piece.
        let request = format!("{method} {path} HTTP/1.0\r\nHost: docker\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.take(DOCKER_ANSWER_BYTES).read_to_end(&mut answer).await.ok()?;
        String::from_utf8(answer).ok()
    };
    tokio::time::timeout(DOCKER_TIMEOUT, exchange).await.ok()?
}

fn names(answer: &str) -> Option<Vec<String>> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    if !head.lines().next()?.contains(" 200 ") {
        return None;
    }
    let list: Vec<serde_json::Value> = serde_json::from_str(body.trim()).ok()?;
    Some(list.iter().filter_map(|row| Some(row["Names"][0].as_str()?.trim_start_matches('/').to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_marked_process_and_its_children_are_found_until_they_end() {
        let mark = format!("mark-{}", uuid::Uuid::now_v7().simple());
        let mut shell = Command::new("sh")
            .args(["-c", "env -i sleep 60 & wait"])
            .env("MARK", &mark)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = i32::try_from(shell.id()).unwrap();
        let marks = [mark];
        let child = loop {
            let found = processes(&marks, &[]);
            if let Some(child) = found.iter().find(|process| process.parent == pid && process.command == "sleep 60") {
                assert!(found.iter().any(|process| process.pid == pid));
                break child.pid;
            }
        };
        assert!(processes(&marks, &[pid]).iter().all(|process| process.pid != pid));
        for pid in [child, pid] {
            rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL)
                .ok();
        }
        shell.wait().unwrap();
        assert_eq!(processes(&marks, &[]), vec![]);
    }

    #[test]
    fn containers_are_read_from_the_engines_answer() {
        let answer = "HTTP/1.0 200 OK\r\nA: b\r\n\r\n[{\"Names\":[\"/hearth-sbx_1\"]}]\n";
        assert_eq!(names(answer), Some(vec!["hearth-sbx_1".to_owned()]));
        assert_eq!(names("HTTP/1.0 500 Oops\r\n\r\n{}"), None);
    }
}
