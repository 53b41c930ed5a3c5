use tally::evaluate;

#[test]
fn arithmetic_is_as_at_school() {
    assert_eq!(evaluate("1 + 2 * 3 - 4 / 2"), Ok(5.0));
    assert_eq!(evaluate("(1 + 2) * 3"), Ok(9.0));
    assert_eq!(evaluate("10 - 4 - 3"), Ok(3.0));
}

#[test]
fn a_power_binds_before_the_sign() {
    assert_eq!(evaluate("-2 ^ 2"), Ok(-4.0));
    assert_eq!(evaluate("2 * -3"), Ok(-6.0));
}

#[test]
fn functions_can_be_nested() {
    assert_eq!(evaluate("max(1, sqrt(16), min(9, 7)) + nextprime(10)"), Ok(18.0));
}
