//! The functions that an expression may call.

use syntax::Error;

pub fn call(name: &str, arguments: &[f64]) -> Result<f64, Error> {
    let unknown = || Error::UnknownFunction(name.to_owned());
    Ok(match (name, arguments) {
        ("sqrt", [x]) => x.sqrt(),
        ("abs", [x]) => x.abs(),
        ("min", [first, rest @ ..]) => rest.iter().copied().fold(*first, f64::min),
        ("max", [first, rest @ ..]) => rest.iter().copied().fold(*first, f64::max),
        ("nextprime", [x]) if *x >= 0.0 => primes::next(*x as u64).ok_or_else(unknown)? as f64,
        _ => return Err(unknown()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_take_their_arguments() {
        assert_eq!(call("max", &[1.0, 3.0, 2.0]), Ok(3.0));
        assert_eq!(call("nextprime", &[90.0]), Ok(97.0));
        assert_eq!(call("sqrt", &[1.0, 2.0]), Err(Error::UnknownFunction("sqrt".to_owned())));
    }
}
