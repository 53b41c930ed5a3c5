//! From characters to tokens.

use crate::{Error, Operator};

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    Number(f64),
    Name(String),
    Operator(Operator),
    Open,
    Close,
    Comma,
}

pub fn tokens(text: &str) -> Result<Vec<Token>, Error> {
    let mut rest = text.trim_start();
    let mut out = Vec::new();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '0'..='9' | '.' => word(rest, |c| c.is_ascii_digit() || c == '.'),
            'a'..='z' => word(rest, |c| c.is_ascii_alphanumeric()),
            _ => first.len_utf8(),
        };
        let (taken, left) = rest.split_at(length);
        out.push(token(first, taken)?);
        rest = left.trim_start();
    }
    Ok(out)
}

fn word(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

fn token(first: char, text: &str) -> Result<Token, Error> {
    Ok(match first {
        '(' => Token::Open,
        ')' => Token::Close,
        ',' => Token::Comma,
        '0'..='9' | '.' => Token::Number(text.parse().map_err(|_| Error::BadNumber(text.to_owned()))?),
        'a'..='z' => Token::Name(text.to_owned()),
        other => Token::Operator(Operator::from_char(other).ok_or(Error::Unexpected(other))?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_separate_and_mean_nothing_else() {
        assert_eq!(tokens("1+ max( 2,3 )"), tokens(" 1 + max(2, 3)"));
    }

    #[test]
    fn what_belongs_nowhere_is_named() {
        assert_eq!(tokens("1 $ 2"), Err(Error::Unexpected('$')));
        assert_eq!(tokens("1.2.3"), Err(Error::BadNumber("1.2.3".to_owned())));
    }
}
