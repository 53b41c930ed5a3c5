//! Compiles a tree into instructions for a stack machine, and runs them.

mod functions;

use syntax::{Error, Operator, Tree};

#[derive(Debug, Clone, PartialEq)]
pub enum Instruction {
    Push(f64),
    Negate,
    Apply(Operator),
    Call { name: String, arguments: usize },
}

pub fn compile(tree: &Tree) -> Vec<Instruction> {
    let mut program = Vec::new();
    emit(tree, &mut program);
    program
}

fn emit(tree: &Tree, program: &mut Vec<Instruction>) {
    match tree {
        Tree::Number(number) => program.push(Instruction::Push(*number)),
        Tree::Negate(inner) => {
            emit(inner, program);
            program.push(Instruction::Negate);
        }
        Tree::Binary(operator, left, right) => {
            emit(left, program);
            emit(right, program);
            program.push(Instruction::Apply(*operator));
        }
        Tree::Call(name, arguments) => {
            for argument in arguments {
                emit(argument, program);
            }
            program.push(Instruction::Call { name: name.clone(), arguments: arguments.len() });
        }
    }
}

pub fn run(program: &[Instruction]) -> Result<f64, Error> {
    let mut stack: Vec<f64> = Vec::new();
    for instruction in program {
        let value = match instruction {
            Instruction::Push(number) => *number,
            Instruction::Negate => -pop(&mut stack)?,
            Instruction::Apply(operator) => {
                let (right, left) = (pop(&mut stack)?, pop(&mut stack)?);
                apply(*operator, left, right)?
            }
            Instruction::Call { name, arguments } => {
                let from = stack.len().checked_sub(*arguments).ok_or(Error::Unfinished)?;
                let arguments: Vec<f64> = stack.drain(from..).collect();
                functions::call(name, &arguments)?
            }
        };
        stack.push(value);
    }
    pop(&mut stack)
}

fn pop(stack: &mut Vec<f64>) -> Result<f64, Error> {
    stack.pop().ok_or(Error::Unfinished)
}

fn apply(operator: Operator, left: f64, right: f64) -> Result<f64, Error> {
    Ok(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide if right == 0.0 => return Err(Error::DivisionByZero),
        Operator::Divide => left / right,
        Operator::Power => left.powf(right),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(n: f64) -> Box<Tree> {
        Box::new(Tree::Number(n))
    }

    #[test]
    fn operands_come_before_their_operator() {
        let tree = Tree::Binary(Operator::Subtract, number(5.0), number(3.0));
        assert_eq!(compile(&tree).last(), Some(&Instruction::Apply(Operator::Subtract)));
        assert_eq!(run(&compile(&tree)), Ok(2.0));
    }

    #[test]
    fn a_division_by_zero_is_an_error() {
        let tree = Tree::Binary(Operator::Divide, number(1.0), number(0.0));
        assert_eq!(run(&compile(&tree)), Err(Error::DivisionByZero));
    }
}
