use primes::{is_prime, next, BOUND};

#[test]
fn small_primes_are_known() {
    let primes: Vec<u64> = (0..30).filter(|&n| is_prime(n) == Some(true)).collect();
    assert_eq!(primes, [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
}

#[test]
fn there_is_no_answer_past_the_bound() {
    assert_eq!(is_prime(BOUND as u64), None);
    assert_eq!(next(97), Some(101));
}
