//! What clients ask.

use super::codec::{Decoder, Encoder, Malformed};
use super::{MAX_COMMAND, MAX_ENV, MAX_ID, MAX_PATH, VERSION};

const PING: u8 = 1;
const EXEC: u8 = 2;
const WAIT: u8 = 3;
const KILL: u8 = 4;
const FORGET: u8 = 5;
const WRITE: u8 = 6;
const READ: u8 = 7;
const SHUTDOWN: u8 = 8;
const LEASE: u8 = 9;

/// A request without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Is somebody there? Counts as a sign of life of the node.
    Ping,
    /// Starts a command or re-attaches to it; the body is its standard input.
    Exec(ExecRequest),
    /// The exec as it is, at the latest after `wait_ms`, earlier when it ended.
    Wait { id: String, wait_ms: u64 },
    /// Ends the exec's tree, what it left behind included; answered when all of it is dead.
    Kill { id: String },
    /// Drops the kept result of an exec that ended.
    Forget { id: String },
    /// Writes a file; the body is its whole content.
    Write { path: Vec<u8>, mode: Option<u32> },
    /// Reads up to `max_bytes` of a file from `offset`.
    Read { path: Vec<u8>, offset: u64, max_bytes: u64 },
    /// Ends every process of the session, then answers, then ends the init.
    Shutdown,
    /// From now on the session ends by itself unless this is asked again within `ms`.
    Lease { ms: u64 },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecRequest {
    pub id: String,
    pub command: Vec<u8>,
    pub cwd: Option<Vec<u8>>,
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    pub timeout_ms: u64,
    /// Bytes of output to keep.
    pub keep: u64,
    /// How long the answer may wait for the end of the command.
    pub wait_ms: u64,
}

impl Request {
    pub fn encode(&self) -> Vec<u8> {
        let out = Encoder::default().u8(VERSION);
        match self {
            Self::Ping => out.u8(PING),
            Self::Exec(exec) => exec.encode(out.u8(EXEC)),
            Self::Wait { id, wait_ms } => out.u8(WAIT).bytes(id.as_bytes()).u64(*wait_ms),
            Self::Kill { id } => out.u8(KILL).bytes(id.as_bytes()),
            Self::Forget { id } => out.u8(FORGET).bytes(id.as_bytes()),
            Self::Write { path, mode } => out.u8(WRITE).bytes(path).bool(mode.is_some()).u32(mode.unwrap_or_default()),
            Self::Read { path, offset, max_bytes } => out.u8(READ).bytes(path).u64(*offset).u64(*max_bytes),
            Self::Shutdown => out.u8(SHUTDOWN),
            Self::Lease { ms } => out.u8(LEASE).u64(*ms),
        }
        .finish()
    }

    /// Also checks the bounds of ids, paths, commands and environments.
    pub fn decode(head: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Decoder::new(head);
        if fields.u8()? != VERSION {
            return Err(Malformed);
        }
        Ok(match fields.u8()? {
            PING => Self::Ping,
            EXEC => Self::Exec(ExecRequest::decode(&mut fields)?),
            WAIT => Self::Wait { id: id(&mut fields)?, wait_ms: fields.u64()? },
            KILL => Self::Kill { id: id(&mut fields)? },
            FORGET => Self::Forget { id: id(&mut fields)? },
            WRITE => {
                let path = path(fields.bytes()?)?;
                let (has_mode, mode) = (fields.bool()?, fields.u32()?);
                Self::Write { path, mode: has_mode.then_some(mode) }
            }
            READ => Self::Read { path: path(fields.bytes()?)?, offset: fields.u64()?, max_bytes: fields.u64()? },
            SHUTDOWN => Self::Shutdown,
            LEASE => Self::Lease { ms: fields.u64()? },
            _ => return Err(Malformed),
        })
    }
}

impl ExecRequest {
    /// Alone, for a process that is to carry it out.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode(Encoder::default()).finish()
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::decode(&mut Decoder::new(bytes))
    }

    fn encode(&self, out: Encoder) -> Encoder {
        let count = u32::try_from(self.env.len()).unwrap_or(u32::MAX);
        let out = out.bytes(self.id.as_bytes()).bytes(&self.command).option(self.cwd.as_deref()).u32(count);
        let out = self.env.iter().fold(out, |out, (name, value)| out.bytes(name).bytes(value));
        out.u64(self.timeout_ms).u64(self.keep).u64(self.wait_ms)
    }

    fn decode(fields: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let id = id(fields)?;
        let command = fields.bytes()?;
        if command.len() > MAX_COMMAND || command.contains(&0) {
            return Err(Malformed);
        }
        let cwd = fields.option()?.map(path).transpose()?;
        let mut env = Vec::new();
        let mut env_bytes = 0_usize;
        for _ in 0..fields.u32()? {
            let (name, value) = (fields.bytes()?, fields.bytes()?);
            env_bytes = env_bytes.saturating_add(name.len() + value.len() + 2);
            let fits = !name.is_empty() && !name.contains(&b'=') && !name.contains(&0) && !value.contains(&0);
            if !fits || env_bytes > MAX_ENV {
                return Err(Malformed);
            }
            env.push((name.to_vec(), value.to_vec()));
        }
        Ok(Self {
            id,
            command: command.to_vec(),
            cwd,
            env,
            timeout_ms: fields.u64()?,
            keep: fields.u64()?,
            wait_ms: fields.u64()?,
        })
    }
}

fn id(fields: &mut Decoder<'_>) -> Result<String, Malformed> {
    let id = fields.text()?;
    if id.is_empty() || id.len() > MAX_ID { Err(Malformed) } else { Ok(id) }
}

fn path(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    let fits = !bytes.is_empty() && bytes.len() <= MAX_PATH && !bytes.contains(&0);
    if fits { Ok(bytes.to_vec()) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec() -> ExecRequest {
        ExecRequest {
            id: "exec_1".to_owned(),
            command: b"echo hi".to_vec(),
            cwd: Some(b"src".to_vec()),
            env: vec![(b"A".to_vec(), b"1".to_vec()), (b"B".to_vec(), Vec::new())],
            timeout_ms: 30_000,
            keep: 1024,
            wait_ms: 5,
        }
    }

    fn all() -> Vec<Request> {
        vec![
            Request::Ping,
            Request::Exec(exec()),
            Request::Wait { id: "e".to_owned(), wait_ms: 7 },
            Request::Kill { id: "e".to_owned() },
            Request::Forget { id: "e".to_owned() },
            Request::Write { path: b"a/b".to_vec(), mode: Some(0o755) },
            Request::Write { path: b"a/b".to_vec(), mode: None },
            Request::Read { path: b"a".to_vec(), offset: 3, max_bytes: 9 },
            Request::Shutdown,
            Request::Lease { ms: 11_250 },
        ]
    }

    #[test]
    fn what_is_encoded_is_decoded_and_every_shorter_head_is_refused() {
        for request in all() {
            let head = request.encode();
            assert_eq!(Request::decode(&head), Ok(request.clone()));
            for end in 0..head.len() {
                assert_eq!(Request::decode(&head[..end]), Err(Malformed), "{request:?} cut at {end}");
            }
        }
    }

    #[test]
    fn a_newer_heads_extra_fields_are_passed_over() {
        let mut head = Request::Ping.encode();
        head.extend_from_slice(&[1, 2, 3]);
        assert_eq!(Request::decode(&head), Ok(Request::Ping));
    }

    #[test]
    fn fields_past_their_bounds_are_refused() {
        let long = ExecRequest { command: vec![b'a'; MAX_COMMAND + 1], ..exec() };
        let nul = ExecRequest { command: b"a\0b".to_vec(), ..exec() };
        let name = ExecRequest { env: vec![(b"A=B".to_vec(), Vec::new())], ..exec() };
        let wide = ExecRequest { env: vec![(b"A".to_vec(), vec![b'x'; MAX_ENV])], ..exec() };
        let id = ExecRequest { id: "x".repeat(MAX_ID + 1), ..exec() };
        for bad in [long, nul, name, wide, id] {
            assert_eq!(Request::decode(&Request::Exec(bad).encode()), Err(Malformed));
        }
        let path = Request::Read { path: vec![b'a'; MAX_PATH + 1], offset: 0, max_bytes: 1 };
        assert_eq!(Request::decode(&path.encode()), Err(Malformed));
    }
}
