//! An expression in, a number out.

use syntax::Error;

pub fn evaluate(text: &str) -> Result<f64, Error> {
    machine::run(&machine::compile(&parser::parse(text)?))
}
