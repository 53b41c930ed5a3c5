//! The loop: one `poll`, then whatever is ready, then whatever is due.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixListener;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::getpid;

use crate::clock::{awake_ms, boot_ms, unix_ms};
use crate::confine;
use crate::exec::{Base, Execs, Launcher, reap_all};
use crate::files::Fence;
use crate::oom::OomWatch;
use crate::options::Options;
use crate::peer::{Body, Parked, Peer, Progress};
use crate::signals::Signals;
use crate::socket::SocketPath;
use crate::wire::{Answer, Refusal, RefusalKind};

mod dispatch;
mod end;

/// Connections at once. Past it the one that has been idle longest goes; if none is idle, the new one.
const MAX_PEERS: usize = 128;
/// Bytes of messages and answers under way.
const MAX_PEER_BYTES: usize = 64 * 1024 * 1024;
/// How long nobody is let in after the process has run out of descriptors.
const DEAF_MS: u64 = 100;
/// The longest sleep, so that a clock that was set or a machine that slept is noticed.
const MAX_SLEEP_MS: u64 = 30_000;

/// What a descriptor that became ready belongs to.
#[derive(Debug, Clone)]
enum Source {
    Listener,
    Signals,
    Peer(u64),
    Maker,
    Output(String),
    Status(String),
}

struct Session {
    listener: UnixListener,
    signals: Signals,
    fence: Fence,
    execs: Execs,
    peers: BTreeMap<u64, Peer>,
    next_peer: u64,
    /// Until then connections wait, in `awake_ms`.
    deaf_until: u64,
    /// In `boot_ms`.
    ends_at: u64,
    idle_ms: u64,
    spoken_at: u64,
    /// Until when it may go on, once its node says so, in `boot_ms`.
    leased_until: u64,
    ending: bool,
}

/// Serves until the session ends.
pub fn serve(options: &Options) -> io::Result<()> {
    let mut session = Session::open(options)?;
    while !session.ending {
        session.turn()?;
    }
    session.end(&options.socket);
    Ok(())
}

impl Session {
    fn open(options: &Options) -> io::Result<Self> {
        let signals = Signals::block()?;
        let listener = bind(options)?;
        let now = boot_ms();
        let left = options.deadline_ms.map_or(u64::MAX, |deadline| deadline.saturating_sub(unix_ms()));
        confine::confine(options)?;
        let fence = Fence::new(&options.root, options.alias.as_deref())?;
        confine::make_home();
        let null = open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let execs =
            Execs::new(Launcher::new(Base::of_process()?, options.spare), OomWatch::new(options.watch_oom), null);
        Ok(Self {
            listener,
            signals,
            fence,
            execs,
            peers: BTreeMap::new(),
            next_peer: 0,
            deaf_until: 0,
            ends_at: now.saturating_add(left),
            idle_ms: options.idle_s.saturating_mul(1_000),
            spoken_at: now,
            leased_until: u64::MAX,
            ending: false,
        })
    }

    fn turn(&mut self) -> io::Result<()> {
        for (source, flags) in self.wait()? {
            self.on_ready(source, flags);
        }
        let now = awake_ms();
        self.execs.tick(now);
        self.answer_parked(now);
        self.peers.retain(|_, peer| peer.stalls_at().is_none_or(|at| now < at));
        let boot = boot_ms();
        if self.execs.running() > 0 {
            self.spoken_at = boot;
        }
        self.ending |= boot >= self.due_at();
        Ok(())
    }

    /// When the session ends by itself, in `boot_ms`.
    fn due_at(&self) -> u64 {
        self.ends_at.min(self.spoken_at.saturating_add(self.idle_ms)).min(self.leased_until)
    }

    /// Sleeps until something is ready or due.
    fn wait(&self) -> io::Result<Vec<(Source, PollFlags)>> {
        let mut sources = vec![Source::Signals];
        let mut fds = vec![PollFd::new(self.signals.fd(), PollFlags::IN)];
        if awake_ms() >= self.deaf_until {
            sources.push(Source::Listener);
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        for (id, peer) in &self.peers {
            sources.push(Source::Peer(*id));
            fds.push(PollFd::new(peer.stream(), peer.interest()));
        }
        if let Some(line) = self.execs.maker() {
            sources.push(Source::Maker);
            fds.push(PollFd::new(line, PollFlags::IN));
        }
        for (id, exec) in self.execs.iter() {
            if let Some(pipe) = exec.pipe() {
                sources.push(Source::Output(id.to_owned()));
                fds.push(PollFd::new(pipe, PollFlags::IN));
            }
            if let Some(status) = exec.status() {
                sources.push(Source::Status(id.to_owned()));
                fds.push(PollFd::new(status, PollFlags::IN));
            }
        }
        let sleep = self.sleep_ms();
        let timeout = Timespec {
            tv_sec: i64::try_from(sleep / 1_000).unwrap_or(0),
            tv_nsec: i64::try_from(sleep % 1_000 * 1_000_000).unwrap_or(0),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = sources.into_iter().zip(fds.iter().map(PollFd::revents));
        Ok(ready.filter(|(_, flags)| !flags.is_empty()).collect())
    }

    fn sleep_ms(&self) -> u64 {
        let now = awake_ms();
        let parked = self.peers.values().filter_map(|peer| match peer.parked() {
            Some(Parked::Result { until, .. }) => Some(*until),
            _ => None,
        });
        let stalls = self.peers.values().filter_map(Peer::stalls_at);
        let deaf = Some(self.deaf_until).filter(|until| *until > now);
        let due = self.execs.next_tick().into_iter().chain(parked).chain(stalls).chain(deaf).min();
        let session = self.due_at().saturating_sub(boot_ms());
        due.map_or(u64::MAX, |due| due.saturating_sub(now)).min(session).min(MAX_SLEEP_MS)
    }

    fn on_ready(&mut self, source: Source, flags: PollFlags) {
        let now = awake_ms();
        match source {
            Source::Listener => self.accept(now),
            Source::Signals => {
                let arrived = self.signals.take();
                self.ending |= arrived.end;
                if arrived.child {
                    for (pid, status) in reap_all() {
                        self.execs.on_reaped(pid, status, now);
                    }
                }
            }
            Source::Peer(id) => self.on_peer(id, flags, now),
            Source::Maker => self.execs.on_made(),
            Source::Output(id) => self.execs.on_output(&id),
            Source::Status(id) => self.execs.on_status(&id, now),
        }
    }

    fn accept(&mut self, now: u64) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors: asking again at once would only spin.
                    if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
                        self.deaf_until = now.saturating_add(DEAF_MS);
                    }
                    return;
                }
            };
            if self.peers.len() >= MAX_PEERS {
                let idle = self.peers.iter().filter(|(_, peer)| peer.idle()).min_by_key(|(_, peer)| peer.since());
                let Some(id) = idle.map(|(id, _)| *id) else { continue };
                self.peers.remove(&id);
            }
            if stream.set_nonblocking(true).is_ok() {
                self.peers.insert(self.next_peer, Peer::new(stream, now));
                self.next_peer += 1;
            }
        }
    }

    fn on_peer(&mut self, id: u64, flags: PollFlags, now: u64) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let alive = if flags.contains(PollFlags::OUT) {
            peer.send(now)
        } else if flags.contains(PollFlags::IN) && peer.idle() {
            match peer.read(now) {
                Progress::Gone => false,
                Progress::Message(message) => {
                    if peer.outside() {
                        self.spoken_at = boot_ms();
                    }
                    self.on_message(id, message, now);
                    true
                }
                // The one whose claim is too much for all of them together goes.
                Progress::Partial => self.peers.values().map(Peer::bytes).sum::<usize>() <= MAX_PEER_BYTES,
            }
        } else {
            false
        };
        if !alive {
            self.peers.remove(&id);
        }
    }
}

fn bind(options: &Options) -> io::Result<UnixListener> {
    let address = SocketPath::of(&options.socket)?;
    // One that an earlier init left; nobody listens on it, since each session has one init.
    std::fs::remove_file(&options.socket).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    let before = rustix::process::umask(Mode::from_raw_mode(!options.socket_mode & 0o777));
    let listener = UnixListener::bind(address.path());
    rustix::process::umask(before);
    let listener = listener?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
