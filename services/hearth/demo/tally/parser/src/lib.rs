//! From tokens to a tree, by precedence climbing.

use syntax::{tokens, Error, Operator, Token, Tree};

/// How strongly an operator binds, and whether it groups to the right.
fn binding(operator: Operator) -> (u8, bool) {
    match operator {
        Operator::Add | Operator::Subtract => (1, false),
        Operator::Multiply | Operator::Divide => (2, false),
        Operator::Power => (4, POWER_GROUPS_RIGHT),
    }
}

/// How strongly a minus sign before a value binds.
const NEGATION: u8 = 5;
const POWER_GROUPS_RIGHT: bool = false;

pub fn parse(text: &str) -> Result<Tree, Error> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0 };
    let tree = parser.expression(0)?;
    if parser.peek().is_some() {
        return Err(Error::Trailing);
    }
    Ok(tree)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn expect(&mut self, wanted: &Token) -> Result<(), Error> {
        match self.take() {
            Some(token) if token == *wanted => Ok(()),
            Some(_) => Err(Error::Trailing),
            None => Err(Error::Unfinished),
        }
    }

    /// An expression whose operators bind more strongly than `floor`.
    fn expression(&mut self, floor: u8) -> Result<Tree, Error> {
        let mut left = self.value()?;
        while let Some(&Token::Operator(operator)) = self.peek() {
            let (strength, right) = binding(operator);
            if strength <= floor {
                break;
            }
            self.at += 1;
            let inner = self.expression(if right { strength - 1 } else { strength })?;
            left = Tree::Binary(operator, Box::new(left), Box::new(inner));
        }
        Ok(left)
    }

    fn value(&mut self) -> Result<Tree, Error> {
        match self.take().ok_or(Error::Unfinished)? {
            Token::Number(number) => Ok(Tree::Number(number)),
            Token::Operator(Operator::Subtract) => Ok(Tree::Negate(Box::new(self.expression(NEGATION)?))),
            Token::Open => {
                let tree = self.expression(0)?;
                self.expect(&Token::Close)?;
                Ok(tree)
            }
            Token::Name(name) => {
                self.expect(&Token::Open)?;
                Ok(Tree::Call(name, self.arguments()?))
            }
            Token::Operator(_) | Token::Close | Token::Comma => Err(Error::Unfinished),
        }
    }

    fn arguments(&mut self) -> Result<Vec<Tree>, Error> {
        let mut arguments = vec![self.expression(0)?];
        while self.peek() == Some(&Token::Comma) {
            self.at += 1;
            arguments.push(self.expression(0)?);
        }
        self.expect(&Token::Close)?;
        Ok(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplication_binds_before_addition() {
        assert_eq!(parse("1 + 2 * 3"), parse("1 + (2 * 3)"));
    }

    #[test]
    fn powers_group_to_the_right() {
        assert_eq!(parse("2 ^ 3 ^ 2"), parse("2 ^ (3 ^ 2)"));
    }

    #[test]
    fn an_open_parenthesis_wants_closing() {
        assert_eq!(parse("(1 + 2"), Err(Error::Unfinished));
        assert_eq!(parse("1 2"), Err(Error::Trailing));
    }
}
