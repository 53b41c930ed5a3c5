//! What the init answers.

use super::VERSION;
use super::codec::{Decoder, Encoder, Malformed};

/// Bytes that are not known.
const UNKNOWN: u64 = u64::MAX;

const PONG: u8 = 1;
const REPORT: u8 = 2;
const DONE: u8 = 3;
const WRITTEN: u8 = 4;
const SLICE: u8 = 5;
const REFUSED: u8 = 255;

/// An answer without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// `live`: execs that run or have left processes behind. `disk_bytes`: what the workspace holds, where it is a
    /// file system of its own.
    Pong {
        live: u32,
        disk_bytes: Option<u64>,
    },
    /// The body is the output that was kept so far.
    Report(Report),
    Done,
    Written(Stamp),
    /// The body is the part of the file.
    Slice {
        truncated: bool,
        stamp: Stamp,
    },
    Refused(Refusal),
}

/// An exec as it is, or as it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Absent while it runs.
    pub exit_code: Option<i32>,
    /// The signal that ended the command, 0 for none.
    pub signal: u32,
    pub timed_out: bool,
    pub killed: bool,
    pub oom_killed: bool,
    /// Bytes written, those that were not kept included.
    pub output_bytes: u64,
    pub duration_ms: u64,
}

/// What tells that a file has changed: one of them differs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub size: u64,
    pub inode: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// What to do about it, in words.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RefusalKind {
    /// Malformed, or out of range.
    Invalid = 1,
    /// The path leads out of the root.
    Outside = 2,
    /// No such file, or nobody started that exec.
    NotFound = 3,
    /// The exec ended, but its result is no longer kept.
    Evicted = 4,
    /// The id belongs to another command.
    Conflict = 5,
    TooLarge = 6,
    /// A bound is reached; later it may not be.
    Busy = 7,
    NoSpace = 8,
    /// The kernel refused what it should not have.
    Failed = 9,
    /// The file may not be read or written by the session's user.
    Denied = 10,
}

impl RefusalKind {
    fn from_u8(value: u8) -> Self {
        match value {
            1 => Self::Invalid,
            2 => Self::Outside,
            3 => Self::NotFound,
            4 => Self::Evicted,
            5 => Self::Conflict,
            6 => Self::TooLarge,
            7 => Self::Busy,
            8 => Self::NoSpace,
            10 => Self::Denied,
            // One that a newer init knows: the words say what it is.
            _ => Self::Failed,
        }
    }
}

impl Refusal {
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        let out = Encoder::default().u8(VERSION);
        match self {
            Self::Pong { live, disk_bytes } => out.u8(PONG).u32(*live).u64(disk_bytes.unwrap_or(UNKNOWN)),
            Self::Report(report) => report.encode(out.u8(REPORT)),
            Self::Done => out.u8(DONE),
            Self::Written(stamp) => stamp.encode(out.u8(WRITTEN)),
            Self::Slice { truncated, stamp } => stamp.encode(out.u8(SLICE).bool(*truncated)),
            Self::Refused(refusal) => out.u8(REFUSED).u8(refusal.kind as u8).bytes(refusal.message.as_bytes()),
        }
        .finish()
    }

    pub fn decode(head: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Decoder::new(head);
        if fields.u8()? != VERSION {
            return Err(Malformed);
        }
        Ok(match fields.u8()? {
            // An init of an earlier version does not say what the workspace holds.
            PONG => {
                let live = fields.u32()?;
                let disk = if fields.is_empty() { UNKNOWN } else { fields.u64()? };
                Self::Pong { live, disk_bytes: Some(disk).filter(|bytes| *bytes != UNKNOWN) }
            }
            REPORT => Self::Report(Report::decode(&mut fields)?),
            DONE => Self::Done,
            WRITTEN => Self::Written(Stamp::decode(&mut fields)?),
            SLICE => Self::Slice { truncated: fields.bool()?, stamp: Stamp::decode(&mut fields)? },
            REFUSED => {
                let kind = RefusalKind::from_u8(fields.u8()?);
                Self::Refused(Refusal { kind, message: fields.text()? })
            }
            _ => return Err(Malformed),
        })
    }
}

impl Report {
    fn encode(&self, out: Encoder) -> Encoder {
        out.bool(self.exit_code.is_some())
            .i64(self.exit_code.unwrap_or_default().into())
            .u32(self.signal)
            .bool(self.timed_out)
            .bool(self.killed)
            .bool(self.oom_killed)
            .u64(self.output_bytes)
            .u64(self.duration_ms)
    }

    fn decode(fields: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let (ended, code) = (fields.bool()?, fields.i64()?);
        let code = i32::try_from(code).map_err(|_| Malformed)?;
        Ok(Self {
            exit_code: ended.then_some(code),
            signal: fields.u32()?,
            timed_out: fields.bool()?,
            killed: fields.bool()?,
            oom_killed: fields.bool()?,
            output_bytes: fields.u64()?,
            duration_ms: fields.u64()?,
        })
    }
}

impl Stamp {
    fn encode(&self, out: Encoder) -> Encoder {
        out.i64(self.mtime_ns).i64(self.ctime_ns).u64(self.size).u64(self.inode)
    }

    fn decode(fields: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(Self { mtime_ns: fields.i64()?, ctime_ns: fields.i64()?, size: fields.u64()?, inode: fields.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_every_shorter_head_is_refused() {
        let report = Report { exit_code: Some(-1), signal: 9, timed_out: true, output_bytes: 5, ..Report::default() };
        let stamp = Stamp { mtime_ns: -3, ctime_ns: 4, size: 5, inode: 6 };
        let refusal = Refusal::new(RefusalKind::Outside, "no");
        for answer in [
            Answer::Pong { live: 3, disk_bytes: Some(4_096) },
            Answer::Pong { live: 0, disk_bytes: None },
            Answer::Report(report),
            Answer::Done,
            Answer::Written(stamp),
            Answer::Slice { truncated: true, stamp },
            Answer::Refused(refusal),
        ] {
            let head = answer.encode();
            assert_eq!(Answer::decode(&head), Ok(answer.clone()));
            // An init of before told nothing of its disk: its answer is a whole one.
            let older = if let Answer::Pong { .. } = answer { head.len() - size_of::<u64>() } else { head.len() };
            for end in (0..head.len()).filter(|end| *end != older) {
                assert_eq!(Answer::decode(&head[..end]), Err(Malformed), "{answer:?} cut at {end}");
            }
        }
    }
}
