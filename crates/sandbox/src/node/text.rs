//! Bytes as JSON text: UTF-8 as it is, never cut inside a character, anything else as base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Bytes for a JSON field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub content: String,
    pub base64: bool,
}

pub(crate) fn base64(bytes: &[u8]) -> Shown {
    Shown { content: STANDARD.encode(bytes), base64: true }
}

/// `cut`: the bytes end where a bound or the moment ended them, so that a character may be torn; the
/// torn part, at most three bytes, is left out.
pub(crate) fn show(mut bytes: Vec<u8>, cut: bool) -> Shown {
    if cut
        && let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    match String::from_utf8(bytes) {
        Ok(content) => Shown { content, base64: false },
        Err(error) => base64(error.as_bytes()),
    }
}

/// Decodes strictly, with or without padding.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let trimmed = text.trim_end_matches('=');
    if text.len() - trimmed.len() > 2 {
        return None;
    }
    base64::engine::general_purpose::STANDARD_NO_PAD.decode(trimmed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_never_cut() {
        let euro = "a€".as_bytes();
        for keep in 2..4 {
            assert_eq!(show(euro[..keep].to_vec(), true), Shown { content: "a".into(), base64: false });
        }
        assert_eq!(show(euro.to_vec(), true).content, "a€");
    }

    #[test]
    fn other_bytes_are_base64_and_said_so() {
        let shown = show(vec![0xff, 0xfe, b'a'], false);
        assert_eq!(shown, Shown { content: "//5h".into(), base64: true });
        let torn = "€".as_bytes()[..2].to_vec();
        assert!(show(torn, false).base64, "a whole output that ends in half a character is not text");
        assert_eq!(show(b"a\0b".to_vec(), false).content, "a\0b");
    }

    #[test]
    fn base64_is_read_with_and_without_padding() {
        assert_eq!(from_base64("YWI="), Some(b"ab".to_vec()));
        assert_eq!(from_base64("YWI"), Some(b"ab".to_vec()));
        assert_eq!(from_base64("Y==="), None);
        assert_eq!(from_base64("Y I="), None);
    }
}
