//! What each request comes to.

use super::{Answer, Body, MAX_PEER_BYTES, Parked, Peer, Refusal, RefusalKind, Session, boot_ms};
use crate::peer::Message;
use crate::wire::{ExecRequest, Request};

/// An answer now, or something to wait for.
enum Outcome {
    Answer(Answer, Body),
    Park(Parked),
}

impl Session {
    pub(super) fn on_message(&mut self, peer: u64, message: Message, now: u64) {
        let outcome = match Request::decode(&message.head) {
            Ok(request) => self.handle(peer, request, message.body, now),
            Err(_) => Err(Refusal::new(RefusalKind::Invalid, "the request is malformed, or a field is past its bound")),
        };
        match outcome {
            Ok(Outcome::Park(parked)) => {
                if let Some(peer) = self.peers.get_mut(&peer) {
                    peer.park(parked);
                }
            }
            Ok(Outcome::Answer(answer, body)) => self.answer(peer, &answer, body, now),
            Err(refusal) => self.answer(peer, &Answer::Refused(refusal), Body::none(), now),
        }
    }

    fn handle(&mut self, peer: u64, request: Request, body: Vec<u8>, now: u64) -> Result<Outcome, Refusal> {
        let done = || Outcome::Answer(Answer::Done, Body::none());
        match request {
            Request::Ping => {
                self.execs.prepare();
                let live = u32::try_from(self.execs.live()).unwrap_or(u32::MAX);
                Ok(Outcome::Answer(Answer::Pong { live, disk_bytes: self.fence.held_bytes() }, Body::none()))
            }
            Request::Exec(exec) => self.exec(&exec, &body, now),
            Request::Wait { id, wait_ms } => self.wait_for(id, wait_ms, now),
            Request::Kill { id } => {
                self.execs.kill(&id, now)?;
                Ok(Outcome::Park(Parked::Tree { id }))
            }
            Request::Forget { id } => self.execs.forget(&id).map(|()| done()),
            Request::Write { path, mode } => {
                let stamp = self.fence.write(&path, &body, mode)?;
                Ok(Outcome::Answer(Answer::Written(stamp), Body::none()))
            }
            Request::Read { path, offset, max_bytes } => self.read(&path, offset, max_bytes),
            Request::Shutdown => {
                self.ending = true;
                Ok(Outcome::Park(Parked::Session))
            }
            Request::Lease { ms } => {
                if !self.peers.get(&peer).is_some_and(Peer::outside) {
                    return Err(Refusal::new(RefusalKind::Denied, "a session does not say how long it may go on"));
                }
                self.leased_until = boot_ms().saturating_add(ms);
                Ok(done())
            }
        }
    }

    fn exec(&mut self, exec: &ExecRequest, stdin: &[u8], now: u64) -> Result<Outcome, Refusal> {
        self.execs.start(exec, stdin, &self.fence, now)?;
        self.wait_for(exec.id.clone(), exec.wait_ms, now)
    }

    fn wait_for(&self, id: String, wait_ms: u64, now: u64) -> Result<Outcome, Refusal> {
        if self.execs.get(&id)?.ended() || wait_ms == 0 {
            let (answer, body) = self.report(&id, now)?;
            return Ok(Outcome::Answer(answer, body));
        }
        Ok(Outcome::Park(Parked::Result { id, until: now.saturating_add(wait_ms) }))
    }

    fn read(&self, path: &[u8], offset: u64, max_bytes: u64) -> Result<Outcome, Refusal> {
        let under_way: usize = self.peers.values().map(Peer::bytes).sum();
        let room = MAX_PEER_BYTES.saturating_sub(under_way) as u64;
        if room < max_bytes.min(crate::wire::MAX_BODY as u64) {
            return Err(Refusal::new(RefusalKind::Busy, "too much is being read and written in the session at once"));
        }
        let slice = self.fence.read(path, offset, max_bytes)?;
        let answer = Answer::Slice { truncated: slice.truncated, stamp: slice.stamp };
        Ok(Outcome::Answer(answer, Body::Bytes(slice.content)))
    }

    fn report(&self, id: &str, now: u64) -> Result<(Answer, Body), Refusal> {
        let exec = self.execs.get(id)?;
        let body = exec.output().map_or_else(Body::none, |(file, len)| Body::File(file, len));
        Ok((Answer::Report(exec.report(now)), body))
    }

    /// Answers those whose wait is over.
    pub(super) fn answer_parked(&mut self, now: u64) {
        let over: Vec<(u64, String)> = self
            .peers
            .iter()
            .filter_map(|(peer, state)| match state.parked()? {
                Parked::Result { id, until } => {
                    let over = now >= *until || self.execs.get(id).map_or(true, |exec| exec.ended());
                    over.then(|| (*peer, id.clone()))
                }
                Parked::Tree { id } => self.execs.gone(id).then(|| (*peer, id.clone())),
                Parked::Session => None,
            })
            .collect();
        for (peer, id) in over {
            let (answer, body) =
                self.report(&id, now).unwrap_or_else(|refusal| (Answer::Refused(refusal), Body::none()));
            self.answer(peer, &answer, body, now);
        }
    }

    /// Sends at once what the peer takes at once, which is most of what there ever is.
    pub(super) fn answer(&mut self, id: u64, answer: &Answer, body: Body, now: u64) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if !(peer.answer(answer, body, now) && peer.send(now)) {
            self.peers.remove(&id);
        }
    }
}
