//! Fields of a head: little-endian integers, byte strings after their length. Made by hand, because
//! the peer may be hostile and the init must stay tiny: no reflection, no recursion, no allocation
//! larger than what has arrived.

/// A head that ends early or holds what it may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

#[derive(Debug, Default)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub fn bool(self, value: bool) -> Self {
        self.u8(u8::from(value))
    }

    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn i64(mut self, value: i64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A string longer than a head can be makes the head too long, which sending refuses.
    pub fn bytes(mut self, value: &[u8]) -> Self {
        let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
        self = self.u32(len);
        self.0.extend_from_slice(value);
        self
    }

    pub fn option(self, value: Option<&[u8]>) -> Self {
        match value {
            Some(bytes) => self.bool(true).bytes(bytes),
            None => self.bool(false),
        }
    }

    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads what an [`Encoder`] wrote. Bytes that are left over are fields of a newer version and are
/// passed over.
#[derive(Debug)]
pub struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    pub const fn new(head: &'a [u8]) -> Self {
        Self(head)
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (front, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        self.take(len)
    }

    pub fn option(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        if self.bool()? { self.bytes().map(Some) } else { Ok(None) }
    }

    pub fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed)
    }
}
