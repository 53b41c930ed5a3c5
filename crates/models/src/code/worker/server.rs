//! The worker process.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::Serialize;

use super::frame::{FromWorker, ToWorker, encode, length};
use crate::code::CodeBounds;
use crate::code::record::Record;
use crate::code::vm::{self, Event, Gone, Launch, Live, Program, Tell, Watchdog};

/// Runs programs for the process at the other end of standard input, until it is gone. Then the
/// caller must exit: programs may still be running.
pub fn serve_code_worker() -> io::Result<()> {
    confine();
    let stream = UnixStream::from(rustix::io::dup(rustix::stdio::stdin())?);
    let out = Out(Arc::new(Mutex::new(stream.try_clone()?)));
    let mut input = BufReader::new(stream);
    let ToWorker::Hello(bounds) = receive(&mut input)? else {
        return Err(io::Error::other("this command is for hearth itself, which starts it when it needs it"));
    };
    let mut server = Server {
        watchdog: Watchdog::new(bounds.unresponsive),
        bounds,
        out,
        starting: HashMap::new(),
        live: HashMap::new(),
    };
    loop {
        match receive(&mut input) {
            Ok(frame) => server.take(frame),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// A crash leaves no core file, and when the machine has no memory left the worker goes first.
fn confine() {
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        tracing::debug!(%error, "core files are not switched off");
    }
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "800") {
        tracing::debug!(%error, "the kernel's order of killing is not changed");
    }
}

struct Server {
    bounds: Arc<CodeBounds>,
    watchdog: Watchdog,
    out: Out,
    starting: HashMap<u64, (Arc<Program>, Record)>,
    live: HashMap<u64, Live>,
}

impl Server {
    fn take(&mut self, frame: ToWorker) {
        match frame {
            ToWorker::Hello(_) => {}
            ToWorker::Start(id, program) => {
                self.starting.insert(id, (program, Record::default()));
            }
            ToWorker::Recorded(id, answered) => {
                if let Some((_, record)) = self.starting.get_mut(&id) {
                    record.restore(answered);
                }
            }
            ToWorker::Go(id) => {
                if let Some((program, record)) = self.starting.remove(&id) {
                    self.start(id, program, record);
                }
            }
            ToWorker::Answer(id, answered) => {
                if let Some(live) = self.live.get(&id) {
                    live.answer(answered);
                }
            }
            ToWorker::Drop(id) => {
                self.starting.remove(&id);
                self.live.remove(&id);
            }
        }
    }

    fn start(&mut self, id: u64, program: Arc<Program>, record: Record) {
        let out = self.out.clone();
        let tell: Tell = Arc::new(move |event| out.send(&FromWorker::Told(id, event)).map_err(|_| Gone));
        let leaves = Leaves { id, out: self.out.clone() };
        let launch = Launch { program, record, bounds: self.bounds.clone(), tell: tell.clone() };
        match vm::launch(launch, &self.watchdog, leaves) {
            Ok(live) => {
                self.live.insert(id, live);
            }
            // Nobody to tell: the connection is gone, and the loop ends next.
            Err(error) => drop(tell(Event::Ended(Err(error.into())))),
        }
    }
}

/// Says that a program's thread has ended.
struct Leaves {
    id: u64,
    out: Out,
}

impl Drop for Leaves {
    fn drop(&mut self) {
        // Without a connection there is nobody who counts.
        self.out.send(&FromWorker::Gone(self.id)).ok();
    }
}

#[derive(Clone)]
struct Out(Arc<Mutex<UnixStream>>);

impl Out {
    fn send(&self, frame: &impl Serialize) -> io::Result<()> {
        let bytes = encode(frame)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes)
    }
}

fn receive(input: &mut impl Read) -> io::Result<ToWorker> {
    let mut header = [0; 4];
    input.read_exact(&mut header)?;
    let length = length(header)?;
    let mut bytes = Vec::new();
    input.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}
