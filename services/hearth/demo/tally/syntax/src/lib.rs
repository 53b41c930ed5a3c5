//! What an expression is made of: tokens on the way in, a tree once it is understood.

mod lexer;

pub use lexer::{tokens, Token};

#[derive(Debug, Clone, PartialEq)]
pub enum Tree {
    Number(f64),
    Negate(Box<Tree>),
    Binary(Operator, Box<Tree>, Box<Tree>),
    Call(String, Vec<Tree>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Power,
}

impl Operator {
    pub fn from_char(c: char) -> Option<Self> {
        Some(match c {
            '+' => Self::Add,
            '-' => Self::Subtract,
            '*' => Self::Multiply,
            '/' => Self::Divide,
            '^' => Self::Power,
            _ => return None,
        })
    }
}

/// Why a text is no expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Error {
    Unexpected(char),
    BadNumber(String),
    Unfinished,
    Trailing,
    UnknownFunction(String),
    DivisionByZero,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unexpected(c) => write!(f, "unexpected {c:?}"),
            Self::BadNumber(text) => write!(f, "{text:?} is no number"),
            Self::Unfinished => write!(f, "the expression ends too early"),
            Self::Trailing => write!(f, "something is left over"),
            Self::UnknownFunction(name) => write!(f, "no function {name:?}"),
            Self::DivisionByZero => write!(f, "division by zero"),
        }
    }
}
